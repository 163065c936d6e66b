"""The emulator's table of MIG profiles against the project's reference, board by board. Exit code 77: no reference here.

    profiles_reference_test.py TRANCHE_EMULATOR REFERENCE
"""

import json
import subprocess
import sys

BOARDS = {"a30": "A30-24GB", "rtxpro6000": "RTX-PRO-6000-96GB",
          "a100-40": "A100-40GB", "a100-80": "A100-80GB", "h100-80": "H100-80GB", "h200": "H200-141GB",
          "b200": "B200-180GB"}


def main(emulator, reference):
    try:
        with open(reference, encoding="utf-8") as file:
            known = {board["key"]: board for board in json.load(file)["gpus"]}
    except FileNotFoundError:
        print(f"skipped: there is no {reference}")
        return 77
    ours = json.loads(subprocess.run([emulator, "mig", "profiles", "--json"], capture_output=True, text=True,
                                     check=True).stdout)
    compared, chosen, wrong = 0, 0, []

    def compare(where, expected, actual):
        nonlocal compared, chosen
        if expected is None:
            chosen += 1  # not published anywhere: the emulator's own choice
            return
        compared += 1
        if expected != actual:
            wrong.append(f"{where}: reference {expected}, emulator {actual}")

    for key, name in BOARDS.items():
        theirs = {p["profile_id"]: p for p in known[name]["profiles"]}
        mine = {p["id"]: p for p in ours[key]["profiles"]}
        compare(f"{key} units", known[name]["placement_units"], ours[key]["units"])
        compare(f"{key} survives reboot", "mode survives reboot" in known[name]["mode_toggle"],
                ours[key]["mode_survives_reboot"])
        compare(f"{key} profiles", sorted(theirs), sorted(mine))
        for number, profile in theirs.items():
            own = mine.get(number, {})
            where = f"{key} {profile['name']}"
            for field, mine_field in (("name", "name"), ("nvml_enum", "query"), ("compute_slices", "slices"),
                                      ("memory_units", "units"), ("sm", "multiprocessors"), ("memory_mib", "memory_mib"),
                                      ("max_instances", "most"), ("placements", "placements")):
                compare(f"{where} {field}", profile[field], own.get(mine_field))
            for field, mine_field in (("ce", "copy_engines"), ("dec", "decoders"), ("jpg", "jpeg"), ("enc", "encoders"),
                                      ("ofa", "optical_flow")):
                compare(f"{where} {field}", profile["engines"].get(field), own.get(mine_field))
            parts = {c["ci_profile_id"]: c for c in profile["compute_instances"]}
            own_parts = {c["id"]: c for c in own.get("compute_instances", []) if c["id"] != 7}
            compare(f"{where} compute instances", sorted(parts), sorted(own_parts))
            for part, expected in parts.items():
                for field, mine_field in (("slices", "slices"), ("max_instances", "most"), ("sm", "multiprocessors"),
                                          ("placements", "placements")):
                    compare(f"{where} {expected['name']} {field}", expected[field],
                            own_parts.get(part, {}).get(mine_field))
    print(f"{compared} facts of {len(BOARDS)} boards compared, {chosen} are not published")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
