// The page of `yoke monitor`: asks /api/snapshot, fills tables and draws charts. Names that come from elsewhere become
// text (textContent), never markup. Numbers that are not known are null, and shown as "-".
'use strict';
const PERIOD = 1000, KEPT = 600, LINES = 8, SVG = 'http://www.w3.org/2000/svg';
const find = id => document.getElementById(id);
const state = {chosen: null, paused: false, sort: 'rank', down: false, last: null, heard: 0};
const past = []; // of {t, devices: {name: value}, runs: Map of supervisor's pid to {loss, speed, waiting, use}}

// ---- texts
const known = value => value !== null && value !== undefined;
function number(value, digits) {
  if (typeof value === 'string') return value; // NaN and Infinity
  return known(value) ? digits === undefined ? String(value) : value.toFixed(digits) : '-';
}
function precise(value) { return typeof value === 'number' ? String(Number(value.toPrecision(6))) : number(value); }
function speed(value) { return number(value, value < 10 ? 2 : value < 1000 ? 1 : 0); }
function bytes(value) { return known(value) ? (value / 2 ** 20).toFixed(0) : '-'; }
function duration(s) {
  if (!known(s)) return '-';
  const whole = Math.floor(s);
  return s < 60 ? s.toFixed(1) + ' s' : whole < 3600 ? `${Math.floor(whole / 60)} min ${whole % 60} s`
    : whole < 86400 ? `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`
    : `${Math.floor(whole / 86400)} d ${Math.floor(whole % 86400 / 3600)} h`;
}
function put(element, text) { if (element.textContent !== text) element.textContent = text; }
function make(name, attributes, text) {
  const svg = ['svg', 'polyline', 'line', 'text', 'circle'].includes(name);
  const element = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// ---- tables
// columns: {title, name, text: row => string, value: row => number or string or null}. Rows and cells that are there are
// used again, so that the focus stays.
function table(element, columns, rows, options = {}) {
  if (!element.tHead) {
    const head = element.createTHead().insertRow();
    for (const column of columns) {
      const cell = make('th', {scope: 'col'});
      if (column.value) cell.className = 'n';
      if (options.sort) {
        const button = make('button', {}, column.title);
        button.addEventListener('click', () => options.sort(column.name));
        cell.append(button);
      } else {
        cell.textContent = column.title;
      }
      head.append(cell);
    }
    element.createTBody();
  }
  if (options.sort)
    [...element.tHead.rows[0].cells].forEach((cell, i) => cell.setAttribute('aria-sort',
      columns[i].name !== state.sort ? 'none' : state.down ? 'descending' : 'ascending'));
  const body = element.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, i) => {
    const line = body.rows[i] || body.insertRow();
    line.className = options.style ? options.style(row) : '';
    if (options.key) line.dataset.key = options.key(row);
    columns.forEach((column, k) => {
      const cell = line.cells[k] || line.insertCell();
      cell.className = column.value ? 'n' : 'name';
      if (column.choose) {
        const button = cell.firstChild || cell.appendChild(make('button', {}));
        button.onclick = () => column.choose(row);
        button.setAttribute('aria-pressed', String(options.style(row) === 'chosen'));
        put(button, column.text(row));
        return;
      }
      const text = column.text(row);
      if (column.value) {
        const data = cell.firstChild || cell.appendChild(make('data', {'data-name': column.name}));
        const value = column.value(row);
        data.value = known(value) ? String(value) : '';
        put(data, text);
      } else {
        put(cell, text);
        cell.title = text;
      }
    });
  });
}

// ---- charts
// series: {name, values: a value or null for each moment of the past}.
function scale(most) { // a round number at or above it
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 5, 10].map(n => n * power).find(n => n >= most * (1 - 1e-9));
}
function chart(figure, title, unit, series, options = {}) {
  const W = 440, H = 150, L = 46, R = 8, T = 8, B = 18;
  const times = past.map(h => h.t), end = times[times.length - 1] || 0;
  const span = Math.max(60, end - (times[0] || 0));
  const finite = series.flatMap(s => s.values).filter(v => Number.isFinite(v));
  const low = options.low !== undefined ? options.low : Math.min(0, ...finite);
  const top = options.top || scale(Math.max(...finite, 0));
  const x = t => L + (W - L - R) * (1 - (end - t) / span), y = v => H - B - (H - T - B) * (v - low) / (top - low);
  const caption = make('figcaption');
  caption.append(make('b', {}, unit ? `${title}, ${unit}` : title));
  const drawn = make('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img'});
  for (const part of [0, .5, 1]) {
    const v = low + (top - low) * part;
    drawn.append(make('line', {class: 'grid', x1: L, x2: W - R, y1: y(v), y2: y(v)}));
    drawn.append(make('text', {x: L - 4, y: y(v) + 4, 'text-anchor': 'end'}, String(Number(v.toPrecision(3)))));
  }
  drawn.append(make('text', {x: L, y: H - 4}, `${duration(span)} ago`));
  drawn.append(make('text', {x: W - R, y: H - 4, 'text-anchor': 'end'}, 'now'));
  const said = [];
  series.slice(0, LINES).forEach((one, i) => {
    let points = [];
    const flush = () => {
      if (points.length === 1)
        drawn.append(make('circle', {class: 's' + i, cx: points[0][0], cy: points[0][1], r: 2}));
      else if (points.length)
        drawn.append(make('polyline', {class: 's' + i, points: points.map(p => p.join()).join(' ')}));
      points = [];
    };
    one.values.forEach((v, k) => {
      if (Number.isFinite(v)) points.push([x(times[k]).toFixed(1), y(Math.min(v, top)).toFixed(1)]);
      else flush();
    });
    flush();
    const now = one.values[one.values.length - 1], text = `${one.name} ${precise(known(now) ? now : null)}`;
    said.push(text);
    caption.append(make('span', {class: typeof now === 'string' ? 'bad' : 'k' + i}, '\u25cf ' + text));
  });
  if (series.length > LINES) caption.append(make('span', {}, `and ${series.length - LINES} more`));
  drawn.setAttribute('aria-label', `${title}: ${said.join(', ') || 'nothing yet'}`);
  figure.replaceChildren(caption, drawn);
}
// The history of a run's lines: pick gives {name: value} of a moment.
function lines(pick) {
  const names = [], all = new Map();
  past.forEach((moment, k) => {
    for (const [name, value] of Object.entries(pick(moment) || {})) {
      if (!all.has(name)) {
        names.push(name);
        all.set(name, new Array(past.length).fill(null));
      }
      all.get(name)[k] = value;
    }
  });
  return names.map(name => ({name, values: all.get(name)}));
}

// ---- what a snapshot comes to
// As many lines as a chart can tell apart: of more than that the least, the middle and the most.
function few(values) {
  const all = Object.values(values).sort((a, b) => a - b);
  return all.length <= LINES ? values
    : {least: all[0], median: all[Math.floor(all.length / 2)], most: all[all.length - 1]};
}
function moment_of(snapshot, before) {
  const now = {t: snapshot.taken_s, devices: {}, runs: new Map(), ranks: new Map()};
  if (known(snapshot.machine.busy_percent)) now.devices['CPU'] = snapshot.machine.busy_percent;
  for (const gpu of snapshot.gpus || [])
    if (known(gpu.utilization_percent)) now.devices['GPU ' + gpu.gpu] = gpu.utilization_percent;
  now.devices = few(now.devices);
  for (const run of snapshot.runs) {
    const one = {loss: {}, speed: {}, waiting: {}, use: {}};
    let samples = null, steps = null;
    for (const rank of run.ranks.filter(rank => rank.alive)) {
      // Speeds are over the last five seconds, so that long steps do not make them jump.
      const old = before.map(h => h.ranks.get(rank.pid)).find(r => r && snapshot.taken_s - r.t <= 5.5);
      const passed = old ? snapshot.taken_s - old.t : 0;
      const more = (a, b) => passed > 0.2 && known(a) && known(b) ? (a - b) / passed : null;
      rank.steps_s = old ? more(rank.steps, old.steps) : null;
      rank.use = old ? more(rank.cpu_s, old.cpu_s) : null;
      rank.use = known(rank.use) ? 100 * rank.use : null;
      const rate = old ? more(rank.samples, old.samples) : null;
      samples = known(rate) ? (samples || 0) + rate : samples;
      steps = known(rank.steps_s) ? Math.max(steps || 0, rank.steps_s) : steps;
      now.ranks.set(rank.pid, {t: snapshot.taken_s, steps: rank.steps, samples: rank.samples, cpu_s: rank.cpu_s});
      if (known(rank.loss) && !Object.keys(one.loss).length) one.loss['rank ' + rank.rank] = rank.loss;
      if (known(rank.waiting_s)) one.waiting['rank ' + rank.rank] = rank.waiting_s;
      if (known(rank.use)) one.use['rank ' + rank.rank] = rank.use;
    }
    one.waiting = few(one.waiting);
    one.use = few(one.use);
    if (known(samples)) one.speed['samples/s'] = samples;
    else if (known(steps)) one.speed['steps/s'] = steps;
    run.samples_s = samples;
    run.steps_s = steps;
    now.runs.set(run.supervisor_pid, one);
  }
  return now;
}
const alive = run => run.ranks.filter(rank => rank.alive);
function most(values) {
  const all = values.filter(known);
  return all.length ? Math.max(...all) : null;
}
function late(run) { // a rank that the others wait for
  const waits = alive(run).map(rank => rank.waiting_s).filter(known), longest = Math.max(...waits, 0);
  const shortest = Math.min(...waits);
  return rank => !rank.alive || (longest > 2 && longest - shortest > 2 && rank.waiting_s <= shortest);
}

// ---- the page
const run_columns = [
  {title: 'job', name: 'job', text: run => run.job, choose: run => choose(run.supervisor_pid)},
  {title: 'for', name: 'for', text: run => duration(Date.now() / 1000 - run.began)},
  {title: 'ranks', name: 'yoke_run_ranks', text: run => `${run.problem ? run.local_ranks : alive(run).length} of ${run.world_size}`,
   value: run => alive(run).length},
  {title: 'step', name: 'step', text: run => number(most(alive(run).map(r => r.steps))), value: run => most(alive(run).map(r => r.steps))},
  {title: 'loss', name: 'loss', text: run => precise(first_loss(run)), value: first_loss},
  {title: 'steps/s', name: 'steps_s', text: run => speed(run.steps_s), value: run => run.steps_s},
  {title: 'samples/s', name: 'samples_s', text: run => speed(run.samples_s), value: run => run.samples_s},
  {title: 'waiting', name: 'waiting', text: run => duration(most(alive(run).map(r => r.waiting_s))),
   value: run => most(alive(run).map(r => r.waiting_s))},
  {title: 'restarts', name: 'yoke_run_restarts_total', text: run => number(run.restarts), value: run => run.restarts},
];
function first_loss(run) {
  const rank = alive(run).find(rank => known(rank.loss));
  return rank ? rank.loss : null;
}
const rank_columns = [
  {title: 'rank', name: 'rank', text: r => number(r.rank), value: r => r.rank},
  {title: 'phase', name: 'phase', text: r => r.alive ? r.phase_text || r.phase : r.pid ? 'has ended' : 'not in yoke'},
  {title: 'step', name: 'yoke_rank_steps_total', text: r => number(r.steps), value: r => r.steps},
  {title: 'loss', name: 'yoke_rank_loss', text: r => precise(r.loss), value: r => r.loss},
  {title: 'waiting', name: 'yoke_rank_waiting_seconds', text: r => duration(r.waiting_s), value: r => r.waiting_s},
  {title: 'steps/s', name: 'steps_s', text: r => speed(r.steps_s), value: r => r.steps_s},
  {title: 'CPU %', name: 'use', text: r => number(r.use, 0), value: r => r.use},
  {title: 'MiB', name: 'yoke_rank_resident_memory_bytes', text: r => bytes(r.resident_bytes), value: r => r.resident_bytes},
  {title: 'last step', name: 'yoke_rank_last_step_age_seconds', text: r => duration(r.step_s_ago), value: r => r.step_s_ago},
  {title: 'samples', name: 'yoke_rank_samples_total', text: r => number(r.samples), value: r => r.samples},
  {title: 'pid', name: 'pid', text: r => number(r.pid), value: r => r.pid},
  {title: 'restarts', name: 'yoke_rank_restarts_total', text: r => number(r.incarnation), value: r => r.incarnation},
  {title: 'role', name: 'role', text: r => r.role},
];
const change_columns = [
  {title: 'when', name: 'when', text: c => new Date(c.time * 1000).toLocaleTimeString()},
  {title: 'cause', name: 'cause', text: c => c.cause.replace('_', ' ')},
  {title: 'next step after', name: 'step_done_s', text: c => known(c.step_done_s) ? c.step_done_s.toFixed(3) + ' s' : '-',
   value: c => c.step_done_s},
  {title: 'who, and why', name: 'what', text: c => c.what},
];
const gpu_columns = [
  {title: 'GPU', name: 'gpu', text: g => number(g.gpu), value: g => g.gpu},
  {title: 'name', name: 'name', text: g => g.name},
  {title: 'busy %', name: 'DCGM_FI_DEV_GPU_UTIL', text: g => number(g.utilization_percent), value: g => g.utilization_percent},
  {title: 'MiB used', name: 'used', text: g => bytes(g.used_bytes), value: g => g.used_bytes},
  {title: 'MiB', name: 'total', text: g => bytes(g.total_bytes), value: g => g.total_bytes},
  {title: 'W', name: 'DCGM_FI_DEV_POWER_USAGE', text: g => number(g.power_w, 0), value: g => g.power_w},
  {title: '\u00b0C', name: 'DCGM_FI_DEV_GPU_TEMP', text: g => number(g.temperature_c), value: g => g.temperature_c},
  {title: 'held by', name: 'holders', text: g => g.holders.map(h => h.job ? `rank ${h.rank} of ${h.job}` : `pid ${h.pid}${h.user ? ' of ' + h.user : ''}`).join(', ') || '-'},
];
const machine_columns = [
  {title: 'cores', name: 'cores', text: m => number(m.cores), value: m => m.cores},
  {title: 'busy %', name: 'busy', text: m => number(m.busy_percent, 0), value: m => m.busy_percent},
  {title: 'MiB used', name: 'used', text: m => bytes(known(m.total_bytes) && known(m.available_bytes) ? m.total_bytes - m.available_bytes : null),
   value: m => m.total_bytes - m.available_bytes},
  {title: 'MiB', name: 'total', text: m => bytes(m.total_bytes), value: m => m.total_bytes},
];
function choose(pid) {
  state.chosen = pid;
  draw();
}
function sorted(ranks) {
  const column = rank_columns.find(c => c.name === state.sort), value = r => column.value ? column.value(r) : column.text(r);
  const order = (a, b) => !known(a) - !known(b) || (a < b ? -1 : a > b ? 1 : 0) * (state.down ? -1 : 1);
  return [...ranks].sort((a, b) => order(value(a), value(b)) || a.rank - b.rank);
}
function draw() {
  const shot = state.last;
  if (!shot) return;
  put(find('host'), shot.host);
  document.title = `yoke on ${shot.host}`;
  if (!shot.runs.some(run => run.supervisor_pid === state.chosen))
    state.chosen = shot.runs.length ? shot.runs[0].supervisor_pid : null;
  find('no-runs').hidden = shot.runs.length > 0;
  find('runs').hidden = !shot.runs.length;
  table(find('runs'), run_columns, shot.runs, {
    style: run => run.supervisor_pid === state.chosen ? 'chosen' : '', key: run => run.job});
  const more = shot.in_other_pid_namespaces ? `${shot.in_other_pid_namespaces} more in another pid namespace, as a container's. ` : '';
  put(find('problem'), more + (shot.problem || ''));
  find('problem').hidden = !more && !shot.problem;
  const run = shot.runs.find(run => run.supervisor_pid === state.chosen);
  find('run').hidden = !run;
  if (run) {
    put(find('run-title'), run.job);
    put(find('program'), `pid ${run.pid}, node ${run.node} of ${run.nodes}${run.program ? ': ' + run.program : ''}${run.problem ? '; ' + run.problem : ''}`);
    const of = what => lines(h => (h.runs.get(run.supervisor_pid) || {})[what]);
    chart(find('chart-loss'), 'Loss', '', of('loss'));
    chart(find('chart-speed'), 'Speed', '', of('speed'));
    chart(find('chart-waiting'), 'Waiting of ranks', 's', of('waiting'));
    chart(find('chart-use'), 'Processor use of ranks', '% of a core', of('use'));
    const is_late = late(run);
    table(find('ranks'), rank_columns, sorted(run.ranks), {
      sort: name => { state.down = state.sort === name && !state.down; state.sort = name; draw(); },
      style: rank => is_late(rank) ? 'late' : '', key: rank => `${run.job}/${rank.rank}`});
    find('members').hidden = !known(run.view);
    put(find('members-now'), `${number(run.members)}, view ${number(run.view)}`);
    table(find('changes'), change_columns, [...run.changes].reverse());
  }
  chart(find('chart-devices'), 'Devices busy', '%', lines(h => h.devices), {low: 0, top: 100});
  table(find('machine'), machine_columns, [shot.machine]);
  find('gpus').hidden = !shot.gpus || !shot.gpus.length;
  table(find('gpus'), gpu_columns, shot.gpus || [], {key: gpu => gpu.gpu});
  find('no-gpus').hidden = shot.gpus && shot.gpus.length > 0;
  put(find('no-gpus'), shot.gpus ? 'No GPUs.' : 'No GPUs: there is no NVIDIA driver.');
}
async function look() {
  const ending = new AbortController(), timer = setTimeout(() => ending.abort(), 10000);
  try {
    const answer = await fetch('/api/snapshot', {signal: ending.signal, cache: 'no-store'});
    if (!answer.ok) throw new Error(`yoke monitor answers ${answer.status}`);
    const shot = await answer.json();
    if (!state.paused) {
      past.push(moment_of(shot, past.slice(-6)));
      if (past.length > KEPT) past.shift();
      state.last = shot;
      state.heard = Date.now();
      draw();
      put(find('state'), `as of ${new Date().toLocaleTimeString()}`);
      find('state').className = '';
    }
  } catch (error) {
    const since = state.heard ? ` for ${duration((Date.now() - state.heard) / 1000)}` : '';
    put(find('state'), `no answer${since}: ${error.message}`);
    find('state').className = 'bad';
  } finally {
    clearTimeout(timer);
    setTimeout(look, PERIOD);
  }
}
function pause() {
  state.paused = !state.paused;
  find('pause').setAttribute('aria-pressed', String(state.paused));
  if (state.paused) put(find('state'), find('state').textContent + ', paused');
}
find('pause').addEventListener('click', pause);
document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !state.last) return;
  const runs = state.last.runs, at = runs.findIndex(run => run.supervisor_pid === state.chosen);
  if (event.key === 'p') pause();
  else if (event.key === 'j' && at + 1 < runs.length) choose(runs[at + 1].supervisor_pid);
  else if (event.key === 'k' && at > 0) choose(runs[at - 1].supervisor_pid);
});
look();
