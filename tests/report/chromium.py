"""A headless Chromium over its debugging pipe: no port, no package, a fresh profile each time.

``python -m tests.report.chromium`` prints the browser that the tests use; it fails where there is none.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROUGHT = Path(__file__).resolve().parents[2] / ".venv-browser" / "chromium"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    """The browser that SHPI_CHROMIUM names, or the first on the path, or the one that `make test` brought."""
    named = os.environ.get("SHPI_CHROMIUM")
    places = (named,) if named else (*NAMES, str(BROUGHT))
    return next((path for place in places if (path := shutil.which(place))), None)


class Browser:
    """One page in one browser; ``with Browser(folder) as browser``."""

    def __init__(self, profile: Path, patience: float = 90.0) -> None:
        self.patience = patience
        self._profile = profile
        self._start()

    def _start(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._number, self._rest, self._session = 0, b"", ""
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        command = [find() or "chromium", *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]

        def place_pipes() -> None:  # the browser reads from 3 and writes to 4
            first, second = os.dup(to_browser), os.dup(from_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        nowhere = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, preexec_fn=place_pipes, close_fds=False, stdin=nowhere, stdout=nowhere, stderr=nowhere
        )
        os.close(to_browser)
        os.close(from_browser)

    def __enter__(self) -> Browser:
        try:
            targets = self.call("Target.getTargets")["targetInfos"]
        except TimeoutError:  # seen once, when the first browser started on a busy machine
            self._end()
            self._start()
            targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + self.patience
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._read, 1 << 20) if ready else b""
            if not piece:
                raise TimeoutError("the browser does not answer")
            self._rest += piece
        first, self._rest = self._rest.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(first)
        return answer

    def open(self, path: Path, *, width: int = 1200, dark: bool = False, media: str = "") -> None:
        """Show a file in a window of a width, in a theme, on screen or as on paper."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[theme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.events = [event for event in self.events if event.get("method") != "Page.loadEventFired"]

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """What the console and the log of the browser said."""
        kinds = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in kinds]

    def requests(self) -> list[str]:
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def picture(self, path: Path) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def paper(self) -> bytes:
        printed = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(printed["data"])


if __name__ == "__main__":
    browser = find()
    print(browser or "no Chromium")
    sys.exit(0 if browser else 1)
