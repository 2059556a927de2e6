"""Run `pip-audit` over the installed packages; says "not audited" if no vulnerabilities can be looked up."""

import json
import subprocess
import sys


def main() -> None:
    """Exit with an error if an installed package has a known vulnerability."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off", "--skip-editable"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (result.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"pip-audit: not audited, nothing could be looked up ({reason})")
        return
    looked_up = [package for package in packages if "vulns" in package]
    if not looked_up:
        print("pip-audit: not audited, no package could be looked up (offline?)")
        return
    flaws = [(package["name"], package["version"], flaw["id"]) for package in looked_up for flaw in package["vulns"]]
    for name, version, flaw in flaws:
        print(f"pip-audit: {name} {version}: {flaw}")
    print(f"pip-audit: {len(looked_up)} of {len(packages)} packages looked up, {len(flaws)} vulnerabilities")
    sys.exit(bool(flaws))


if __name__ == "__main__":
    main()
