import json, os, subprocess, sys, tempfile, time, sqlite3
from pathlib import Path
R = "/tmp/h/aadopt"
ENV = {k: v for k, v in os.environ.items() if k != "BIDE_URL"} | {"PYTHONPATH": f"{R}/src:{R}", "PYTHONDONTWRITEBYTECODE": "1"}
PY = "/work/main/.venv/bin/python"
def folder():
    d = tempfile.mkdtemp(prefix="aadopt-"); os.chdir(d); return Path(d)
def bide(*args, timeout=60, url="sqlite:///bide.db"):
    t = time.monotonic()
    try:
        p = subprocess.run([PY, "-m", "bide", *args, "--url", url], env=ENV, capture_output=True, text=True, timeout=timeout)
        return p.returncode, p.stdout.strip(), p.stderr.strip()
    except subprocess.TimeoutExpired as e:
        return "TIMEOUT", (e.stdout or b"").decode(), (e.stderr or b"").decode()
def start(*args, url="sqlite:///bide.db"):
    return subprocess.Popen([PY, "-m", "bide", *args, "--url", url], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
def show(what, r):
    print(f"--- {what}: exit {r[0]}"); print("  out:", r[1][:600]); print("  err:", r[2][-600:])
def msgs(topic, url="sqlite:///bide.db"):
    from tests.adopt.reading import everything
    return everything(topic, url)
