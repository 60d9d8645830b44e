#!/usr/bin/env bash
# The main job, end to end: from a Python function on disk to a signed artifact in a registry, to a
# policy-checked call in a fresh WASI cell, to a result with metrics, digests and a whole audit log.
# Leaves everything in demo-out/.
set -euo pipefail
cd "$(dirname "$0")/.."
out="$PWD/demo-out"
rm -rf "$out"
mkdir -m 700 -p "$out"
export TOOLCELL_HOME="$out/home"
example=tools-examples/csv-profile
csv=(tools-examples/data/*.csv)

step() { printf '\n\033[1m$ %s\033[0m\n' "toolcell $*"; toolcell "$@"; }

step keygen demo --trust
step build "$example" --out "$out"
artifact=("$out"/csv-profile-*.tool)
step sign "${artifact[0]}" --key demo
step verify "${artifact[0]}"
step publish "${artifact[0]}"
step list
printf '\n%s has %s rows\n' "${csv[0]}" "$(($(wc -l < "${csv[0]}") - 1))"
printf '\n\033[1m$ toolcell run csv-profile profile --arg csv=@%s --policy %s --json\033[0m\n' \
  "${csv[0]}" "$example/policy.toml"
toolcell run csv-profile profile --arg "csv=@${csv[0]}" --policy "$example/policy.toml" --json \
  > "$out/result.json"
python - "$out/result.json" <<'PY'
import json
import sys

with open(sys.argv[1]) as file:
    result = json.load(file)
print(json.dumps(result["output"], indent=2)[:2400], "\n  …")
for name in ("status", "lane", "isolation", "duration_ms", "metrics", "artifact_digest",
             "policy_digest", "correlation_id", "warnings"):
    print(f"{name:16} {json.dumps(result[name])}")
PY
step audit verify "$TOOLCELL_HOME/audit.jsonl"
