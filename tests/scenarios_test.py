"""docs/scenarios.md against the tests: what it names exists, and every row that concerns one machine is there."""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Of clusters of machines and of containers.
ELSEWHERE = {35, 37, 38, 49, 75, 84, 86, 87}
ROWS = set(range(1, 91)) - ELSEWHERE


def sources():
    """Every test: "file.py test_name", file names alone, "Suite.Name" of GoogleTest and of CMake."""
    known, suites = set(), set()
    for base, _, files in os.walk(ROOT):
        if os.path.relpath(base, ROOT).split(os.sep)[0] not in ("src", "tests"):
            continue
        for name in files:
            if not name.endswith((".py", ".cc", "CMakeLists.txt")):
                continue
            with open(os.path.join(base, name), encoding="utf-8") as file:
                text = file.read()
            if name.endswith(".py"):
                known.add(name)
                known.update(f"{name} {test}" for test in re.findall(r"def (test_\w+)", text))
            elif name.endswith(".cc"):
                for suite, test in re.findall(r"TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", text):
                    known.add(f"{suite}.{test}")
                    suites.add(suite)
            else:
                known.update(re.findall(r"tranche_(?:long_)?lab_test\((\S+)", text))
                known.update(re.findall(r"NAME (\w+\.\w+)", text))
    return known, suites


def main():
    known, suites = sources()
    with open(os.path.join(ROOT, "docs", "scenarios.md"), encoding="utf-8") as file:
        lines = [line for line in file if line.startswith("| ")]
    wrong, rows, named, later = [], set(), 0, 0
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if cells[0] in ("row", "flaw"):
            continue
        if cells[0].isdigit():
            rows.add(int(cells[0]))
        tests = [word for word in re.findall(r"`([^`]+)`", cells[-1]) if re.match(r"\w+\.(py\b|[A-Z*])", word)]
        named += len(tests)
        later += "later, because" in cells[-1]
        if not tests and "later, because" not in cells[-1]:
            wrong.append(f"neither a test nor a reason: {line.strip()}")
        for test in tests:
            suite = test.split(".")[0]
            board = re.sub(r"\.h100-80x4$", ".${suffix}", test)
            if test not in known and board not in known and not (test.endswith(".*") and suite in suites):
                wrong.append(f"there is no test {test}")
    wrong += [f"row {row} is missing" for row in sorted(ROWS - rows)]
    print("\n".join(wrong) or f"{len(rows)} rows, {named} tests named, {later} times later")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
