"""`pip-audit` over what is installed; skipped with a word where known vulnerabilities cannot be looked up."""

import json
import subprocess
import sys


def main() -> None:
    """Exit with an error where an installed package has a known vulnerability."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off", "--skip-editable"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"pip-audit: skipped, nothing could be looked up ({reason})")
        return
    looked_up = [package for package in packages if "vulns" in package]
    if not looked_up:
        print("pip-audit: skipped, no package could be looked up (offline?)")
        return
    found = [(package["name"], package["version"], flaw["id"]) for package in looked_up for flaw in package["vulns"]]
    for name, version, flaw in found:
        print(f"pip-audit: {name} {version}: {flaw}")
    print(f"pip-audit: {len(looked_up)} of {len(packages)} packages looked up, {len(found)} vulnerabilities")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
