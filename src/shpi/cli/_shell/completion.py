"""Completion scripts, generated from the argument parser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option with its words and its choices."""

    words: tuple[str, ...]
    about: str
    choices: tuple[str, ...] = ()
    takes_value: bool = True


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb with its options."""

    name: str
    about: str
    options: tuple[Option, ...]
    words: tuple[str, ...] = ()  # choices of a positional argument


def script(shell: str) -> str:
    """The script for bash, zsh or fish."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](verbs())


def verbs() -> list[Verb]:
    """All verbs with their options."""
    from shpi.cli.main import build_parser

    parser = build_parser()
    nest = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    about = {choice.dest: choice.help or "" for choice in nest._choices_actions}
    return [_verb(name, about.get(name, ""), parser) for name, parser in nest.choices.items()]


def _verb(name: str, about: str, parser: argparse.ArgumentParser) -> Verb:
    options: list[Option] = []
    words: list[str] = []
    for action in parser._actions:
        choices = tuple(map(str, action.choices)) if action.choices is not None else ()
        if action.option_strings:
            plain = (action.help or "").replace("%%", "%").replace("'", "’")
            takes = action.nargs != 0
            options.append(
                Option(words=tuple(action.option_strings), about=plain, choices=choices, takes_value=takes)
            )
        else:
            words += choices
    return Verb(name=name, about=about.replace("'", "’"), options=tuple(options), words=tuple(words))


def _bash(all_verbs: list[Verb]) -> str:
    cases, values = [], []
    for verb in all_verbs:
        options = " ".join(word for option in verb.options for word in option.words)
        cases.append(f'    {verb.name}) words="{" ".join(verb.words)}"; options="{options}" ;;')
        values += [
            f"    {verb.name}:{word}) {_reply(option.choices)}; return ;;"
            for option in verb.options
            for word in option.words
            if option.choices
        ]
    return "\n".join([
        "_shpi() {",
        '  local now="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        '  local verb="${COMP_WORDS[1]}"',
        '  local words="" options=""',
        "  if [ \"$COMP_CWORD\" -eq 1 ]; then",
        f"    {_reply([verb.name for verb in all_verbs])}; return",
        "  fi",
        '  case "$verb:$before" in',
        *values,
        "  esac",
        '  case "$verb" in',
        *cases,
        "  esac",
        '  if [[ "$now" == -* ]]; then COMPREPLY=($(compgen -W "$options" -- "$now"));',
        '  else COMPREPLY=($(compgen -W "$words" -- "$now") $(compgen -f -- "$now")); fi',
        "}",
        "complete -o filenames -F _shpi shpi",
        "",
    ])  # fmt: skip


def _reply(words: Sequence[str]) -> str:
    return f'COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$now"))'


def _zsh(all_verbs: list[Verb]) -> str:
    """Zsh understands the completions of bash."""
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash(all_verbs)


def _fish(all_verbs: list[Verb]) -> str:
    lines = []
    for verb in all_verbs:
        lines.append(f"complete -c shpi -n __fish_use_subcommand -a {verb.name} -d '{verb.about}'")
        here = f"complete -c shpi -n '__fish_seen_subcommand_from {verb.name}'"
        lines += [f"{here} -a '{' '.join(verb.words)}'"] if verb.words else []
        for option in verb.options:
            words = "".join(f" -l {w[2:]}" if w.startswith("--") else f" -s {w[1:]}" for w in option.words)
            value = (
                f" -x -a '{' '.join(option.choices)}'"
                if option.choices
                else " -r"
                if option.takes_value
                else ""
            )
            lines.append(f"{here}{words}{value} -d '{option.about}'")
    return "\n".join([*lines, ""])
