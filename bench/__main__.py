"""`python -m bench`: measure, print, write the JSON, and say by the exit status whether the floors hold."""

from __future__ import annotations

import json
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench import roundtrip

RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> None:
    results = roundtrip.measure()
    for case, hosts in results.items():
        print(f"\n{case}")
        print(f"  {'host':14} {'p50 us':>9} {'p99 us':>9} {'calls/s':>11} {'CPU us/call':>12} {'x raw C':>8}")
        for host, sample in hosts.items():
            p50, p99 = (f"{sample[key]:.1f}" if sample[key] else "-" for key in ("p50_us", "p99_us"))
            times = roundtrip.ratio(results, case, host)
            print(f"  {host:14} {p50:>9} {p99:>9} {sample['per_second']:>11,.0f} {sample['cpu_us']:>12.2f} {times:>8.2f}")
    print("\nfloors (deadline and tap on)")
    failed = False
    floors = []
    for floor in roundtrip.FLOORS:
        times = roundtrip.ratio(results, floor.case, floor.host)
        ok = times <= floor.limit
        failed |= not ok
        floors.append({**floor._asdict(), "measured": times, "pass": ok})
        print(f"  {'pass' if ok else 'FAIL'}  {floor.case}, {floor.host}: {times:.2f}x raw C (at most {floor.limit:g}x)")
    date = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"date": date, "python": platform.python_version(), "kernel": platform.release()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"about": about, "round trip": results, "floors": floors}, indent=1) + "\n")
    print(f"\nwritten: bench/results/{RESULTS.name}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
