"""Coverage-guided fuzzing of every decoder (atheris): python -m tests.fuzz [--seconds 60] [TARGET...]

The time is for all targets together. Each runs in a process of its own, begins with its corpus in
`tests/fuzz/corpus`, and keeps what it learns in `build/fuzz`. An input that breaks a decoder is written there
too, and printed: mend the decoder, and add the input to the corpus as `found-...`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

LEARNT = Path("build/fuzz")
MEMORY_MB = 2048
INPUT_SECONDS = 20
INPUT_BYTES = 4096


def main() -> int:
    """Run them, one after the other."""
    if sys.argv[1:2] == ["--one"]:  # before anything is imported that is to be instrumented
        _fuzz(sys.argv[2], sys.argv[3:])
        return 0
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__.split(":")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=60, help="for all of them together [60]")
    given = parser.parse_args()
    names = given.targets or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}")
    broken = [name for name in names if not _run(name, max(1, given.seconds // len(names)))]
    print(f"{len(names) - len(broken)} of {len(names)} targets held", flush=True)
    if broken:
        print(f"broken: {', '.join(broken)}; the inputs are in {LEARNT}/crash-TARGET-*")
    return 1 if broken else 0


def _run(name: str, seconds: int) -> bool:
    from tests.fuzz.targets import CORPUS

    learnt = LEARNT / name
    learnt.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz", "--one", name, str(learnt), str(CORPUS / name)]
    command += [
        f"-max_total_time={seconds}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-timeout={INPUT_SECONDS}",
        f"-max_len={INPUT_BYTES}",
        f"-artifact_prefix={LEARNT}/crash-{name}-",
        "-verbosity=0",
        "-print_final_stats=1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    stats = dict(
        line.removeprefix("stat::").split(":", 1)
        for line in done.stderr.splitlines()
        if line.startswith("stat::")
    )
    count = stats.get("number_of_executed_units", "?").strip()
    print(f"{name}: {count} inputs in {seconds} s: {'held' if not done.returncode else 'BROKEN'}")
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-4000:], sep="\n", flush=True)
    return done.returncode == 0


def _fuzz(name: str, arguments: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["moebius", "tstreams"]):
        from tests.fuzz.targets import TARGETS

        atheris.Setup(["fuzz", *arguments], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
