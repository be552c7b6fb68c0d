"""``shpi serve --demo``: a service, and a simulated shop that sends it four weeks of customers in minutes."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

from shpi.errors import ShpiError
from shpi.serve.client import Client
from shpi.serve.demo.shop import Shop
from shpi.serve.demo.traffic import Traffic

SECONDS_PER_DAY = 6.0  # real seconds per simulated day
SETTINGS = """# A demonstration: time is that of the simulated shop, and everything is fast.
[server]
clock = "events"
[decide]
start = "apprentice"
floor = 0.3  # the old rule explores nothing by itself, and two weeks are short
[rewards]
wait = "1h"
[log]
metric = "reward in 3d"
[cycle]
min_users = 200
[canary]
stages = [0.25]
users = 60
look_every = "1s"
"""
ARRIVALS = 500  # new customers per day


def run_demo(folder: Path | None, *, port: int | None = None, days: int = 28) -> int:
    """Serve the shop's traffic and learn every other day, until the process is stopped."""
    from shpi.serve.web.server import serve

    place = Path(tempfile.mkdtemp(prefix="shpi-serve-demo-")) if folder is None else folder
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "serve.toml").exists():
        (place / "serve.toml").write_text(SETTINGS, encoding="utf-8")
    number = 8400 if port is None else port
    shop = threading.Thread(target=_shop, args=(place, f"http://127.0.0.1:{number}", days), daemon=True)
    shop.start()
    return serve(place, port=number)


def _shop(folder: Path, url: str, days: int) -> None:
    """Send the traffic of one day after the other, and let the service learn from it."""
    from shpi.serve.loop.cycle import run_cycle

    client, traffic = Client(url, retries=8, timeout=60), Traffic(Shop(), arrivals=ARRIVALS)
    time.sleep(1.0)
    for day in range(days):
        began = time.monotonic()
        try:
            clicks = traffic.run_day(client)
            print(f"day {day + 1}: {clicks} clicks of {len(traffic.moods)} customers", file=sys.stderr)
            if day % 2 and day > 2:
                print(run_cycle(folder), file=sys.stderr)
        except ShpiError as error:
            print(f"the shop: {error}", file=sys.stderr)
        time.sleep(max(0.0, SECONDS_PER_DAY - (time.monotonic() - began)))
