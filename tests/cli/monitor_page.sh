#!/bin/bash
# monitor_page.sh - the page of `yoke monitor` in a browser without a screen: its numbers are those of /metrics; names do
# nothing; what it loads; keys, sorting, a narrow window, dark and light; a monitor that is gone.
root=$PWD
. tests/support/tap.bash
needs_proc "processes are looked for there"
pids=()
end_all()
{
    local pid
    for pid in "${pids[@]}"; do
        kill -CONT "$pid"
        kill -KILL "$pid"
    done
    wait
    rm -rf "$work"
} 2> /dev/null
trap end_all EXIT
export YOKE_RUN_DIR=$work/runs
chromium=$(command -v chromium || command -v chromium-browser)
if [ -z "$chromium" ] || ! find_python ""; then
    echo "1..0 # SKIP there is no chromium, or no Python"
    exit 0
fi
if command -v cc > /dev/null && cc -shared -fPIC -D_GNU_SOURCE -o libnvidia-ml.so.1 "$root/tests/emulator/nvml.c"; then
    export YOKE_EMULATOR_GPUS=2
fi
LD_LIBRARY_PATH=$PWD NODE_NAME='node <i>7</i>' "$YOKE" monitor -a 127.0.0.1:0 > monitor.out 2> monitor.err < /dev/null &
monitor=$!
pids+=($monitor)
has_begun() { holds monitor.out /metrics || ! kill -0 $monitor 2> /dev/null; }
wait_until 20 has_begun
port=$(sed -n 's,.*http://127.0.0.1:\([0-9]*\)/metrics.*,\1,p' monitor.out)
if [ -z "$port" ]; then
    echo "1..0 # SKIP $(head -n 1 monitor.err)"
    exit 0
fi
"$YOKE" run -n 2 --job-id '<img src=x onerror=document.title=1>"&' -- "$YOKE" train --data glyphs --batch-size 32 \
    --epochs 100000 --no-eval > job.out 2> job.err < /dev/null &
pids+=($!)
wait_until 60 eval '[ -n "$(ls runs/*.json 2> /dev/null)" ]'
"$YOKE" run -n 2 --virtual-ranks 2 --job-id other -- "$YOKE" train --elastic --data glyphs --epochs 100000 --no-eval \
    > other.out 2> other.err < /dev/null &
pids+=($!)
# train NUMBER: so many processes have made steps.
train()
{
    "$YOKE" ps --json > out
    [ "$(grep -oE '"steps":[0-9]+' out | awk -F: '$2 >= 3' | wc -l)" = "$1" ]
}
ok "both jobs train" wait_until 60 train 4
# One process of the other job is lost, and the job goes on.
lost=$("$python" -c 'import json; print([rank["pid"] for run in json.load(open("out"))["runs"] if run["job"] == "other"
    for rank in run["ranks"]][1])')
kill -KILL "$lost"
goes_on() { "$YOKE" ps --json > out && holds out '"cause":"ended"' && ! holds out '"step_done_s":null'; }
ok "a process is lost, and its job goes on" wait_until 60 goes_on
ranks=($(grep -oE '"pid":[0-9]+,"alive":true' out | grep -oE '[0-9]+'))
supervisors=($(grep -oE '"supervisor_pid":[0-9]+' out | grep -oE '[0-9]+'))
pids+=("${ranks[@]}" "${supervisors[@]}")
kill -STOP "${supervisors[@]}" "${ranks[@]}"
cat > browser.py << 'END_OF_PYTHON'
# Speaks the protocol of Chromium's developer tools by two pipes, a JSON text and a zero byte for each message.
import json, os, re, subprocess, sys, time, urllib.request
chromium, port, patience, monitor, gpus = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5] != "0"
site = f"http://127.0.0.1:{port}"
to_browser, from_page = os.pipe(), os.pipe()
def set_up():
    for fd, place in ((to_browser[0], 3), (from_page[1], 4)):
        os.dup2(fd, place + 20)
    for place in (3, 4):
        os.dup2(place + 20, place)
browser = subprocess.Popen([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
    "--user-data-dir=" + os.path.abspath("profile"), "--no-first-run", "about:blank"], preexec_fn=set_up, close_fds=False,
    stdout=subprocess.DEVNULL, stderr=open("browser.err", "w"))
os.close(from_page[1])
events, number, session, left = [], 0, None, b""
def receive():
    global left
    while b"\0" not in left:
        more = os.read(from_page[0], 1 << 16)
        assert more, open("browser.err").read()[-2000:]
        left += more
    one, left = left.split(b"\0", 1)
    return json.loads(one)
def call(method, **parameters):
    global number
    number += 1
    message = {"id": number, "method": method, "params": parameters}
    if session:
        message["sessionId"] = session
    os.write(to_browser[1], json.dumps(message).encode() + b"\0")
    while True:
        answer = receive()
        if answer.get("id") == number:
            assert "error" not in answer, (method, answer)
            return answer["result"]
        events.append(answer)
def page(expression):
    result = call("Runtime.evaluate", expression=expression, returnByValue=True)
    assert "exceptionDetails" not in result, (expression, result)
    return result["result"].get("value")
def until(what, expression):
    end = time.monotonic() + patience
    while not page(expression):
        assert time.monotonic() < end, (what, page("document.body.innerText"))
        time.sleep(0.1)
    print("did", what)
target = call("Target.createTarget", url="about:blank")["targetId"]
session = call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
for domain in ("Page", "Runtime", "Log", "Network"):
    call(domain + ".enable")
def size(width, height, mobile=False):
    call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
def scheme(name):
    call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])
def key(name):
    for kind in ("keyDown", "keyUp"):
        text = "\r" if name == "Enter" else name
        call("Input.dispatchKeyEvent", type=kind, key=name, text=text if kind == "keyDown" else "",
             windowsVirtualKeyCode=ord(text.upper()))
size(1280, 900)
call("Page.navigate", url=site + "/")
until("first look", "document.readyState === 'complete' && document.querySelectorAll('#runs tbody tr').length === 2")

# Names are text.
job = '<img src=x onerror=document.title=1>"&'
assert page("document.querySelector('#runs tbody button').textContent") == job
assert page("document.title") == "yoke on node <i>7</i>", page("document.title")
assert page("document.querySelectorAll('img, i, main script').length") == 0
print("did names")

# Every number that has a metric's name is that metric's.
def unescape(text):
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)
metrics = {}
with urllib.request.urlopen(site + "/metrics", timeout=60) as answer:
    for line in answer.read().decode().splitlines():
        if line and line[0] != "#":
            name, labels, value = re.match(r"([a-zA-Z_:]+)(?:\{(.*)\})? (\S+)$", line).groups()
            labels = {k: unescape(v) for k, v in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")}
            if name.startswith("yoke_rank_"):
                metrics[name, labels["job_id"] + "/" + labels["rank"]] = float(value)
            elif name.startswith("yoke_run_"):
                metrics[name, labels["job_id"]] = float(value)
            elif name.startswith("DCGM_"):
                metrics[name, labels["gpu"]] = float(value)
def compare(expected):
    shown = page("""[...document.querySelectorAll('tr[data-key] data[data-name]')].map(
        d => [d.dataset.name, d.closest('tr').dataset.key, d.value, d.textContent])""")
    count = 0
    for name, row, value, text in shown:
        if not name.startswith(("yoke_", "DCGM_")):
            continue
        if row == "other/1": # it has ended, and has no metrics
            assert (value, text) in (("", "-"), ("0", "0")), (name, value, text)
            continue
        assert (name, row) in metrics, (name, row, value, sorted(metrics))
        real = metrics[name, row]
        if "seconds" in name: # ages go on; both are of jobs that stand still
            assert abs(float(value) - real) < patience, (name, row, value, real)
            assert re.match(r"\d+(\.\d)? (s|min)", text), text
        elif "memory" in name: # the kernel may take some of a process that stands still
            assert 0 < float(value) and abs(float(value) - real) < 0.5 * real and text == f"{float(value) / 2**20:.0f}"
        else:
            assert abs(float(value) - real) <= 1e-12 * abs(real), (name, row, value, real)
            shown_as = float(re.match(r"[-+0-9.e]+", text)[0])
            assert shown_as == float(f"{real:.6g}") if "loss" in name else abs(shown_as - real) <= 0.5, (name, text, real)
        count += 1
    assert count >= expected, shown
    print("did", count, "values")
compare(2 * 2 + 2 * 6 + (2 * 2 if gpus else 0))
until("charts", "document.querySelectorAll('#chart-loss polyline, #chart-waiting polyline').length >= 2")
assert "rank 0" in page("document.querySelector('#chart-waiting svg').getAttribute('aria-label')")

# Keys and buttons.
key("j")
until("j", "document.getElementById('run-title').textContent === 'other'")
compare(2 * 2 + 6)
assert page("document.querySelectorAll('#ranks tbody tr').length") == 2
change = page("[...document.querySelectorAll('#changes tbody tr')].map(r => [...r.cells].map(c => c.textContent))")
assert len(change) == 1 and change[0][1] == "ended", change
assert re.match(r"\d+\.\d{3} s$", change[0][2]) and "rank 1 is lost: killed by SIGKILL" in change[0][3], change
assert page("document.getElementById('members-now').textContent") == "1, view 2"
print("did changes")
key("k")
until("k", f"document.getElementById('run-title').textContent === {json.dumps(job)}")
order = "[...document.querySelectorAll('#ranks tbody tr')].map(r => r.cells[0].textContent).join()"
assert page(order) == "0,1"
for expected in ("ascending", "descending"):
    page("document.querySelector('#ranks th:first-child button').focus()")
    if expected == "descending":
        key("Enter")
        assert page(order) == "1,0"
    assert page("document.querySelector('#ranks th').getAttribute('aria-sort')") == expected
key("p")
assert page("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
key("p")
print("did keys")

# A phone, dark and light: nothing but tables is wider than the window; texts stand out from what is behind them.
contrast = """(() => {
    const light = text => { const c = text.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255).map(
        v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; };
    const ground = e => { const c = getComputedStyle(e).backgroundColor;
        return /, 0\\)$/.test(c) ? ground(e.parentElement) : light(c); };
    const writes = e => e.checkVisibility() && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    return Math.min(...[...document.querySelectorAll('body *')].filter(writes).map(e => {
        const style = getComputedStyle(e), own = light(e.namespaceURI.includes('svg') ? style.fill : style.color);
        return (Math.max(own, ground(e)) + 0.05) / (Math.min(own, ground(e)) + 0.05); })); })()"""
grounds = []
for width in (360, 1280):
    size(width, 800, width < 1000)
    for name in ("light", "dark"):
        scheme(name)
        time.sleep(0.2)
        assert page("document.documentElement.scrollWidth") <= width, (width, page("document.documentElement.scrollWidth"))
        grounds.append(page("getComputedStyle(document.body).backgroundColor"))
        assert page(contrast) >= 4.5, (width, name, page(contrast))
assert grounds[0] == grounds[2] != grounds[1] == grounds[3], grounds
print("did looks")

# What was loaded, and what the browser had to say.
page("0")
loaded = {e["params"]["request"]["url"] for e in events if e.get("method") == "Network.requestWillBeSent"}
assert loaded <= {site + path for path in ("/", "/page.css", "/page.js", "/api/snapshot")} | {"data:,"}, loaded
said = [e for e in events if e.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")]
assert not said, said
os.kill(monitor, 9)
until("no answer", "/^no answer/.test(document.getElementById('state').textContent)")
assert page("document.querySelectorAll('#runs tbody tr').length") == 2
session = None
call("Browser.close")
browser.wait()
END_OF_PYTHON
ok "the page in $("$chromium" --version 2> /dev/null)" \
    eval '"$python" browser.py "$chromium" "$port" "$(patience 60)" $monitor "${YOKE_EMULATOR_GPUS:-0}" > out 2> err'
finish
