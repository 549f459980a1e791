"use strict";
// Everything can be read without this script. It opens and closes, shows and hides lines, tells
// words and values, zooms into plots, and sorts and filters tables.
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const make = (name, properties, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};

for (const button of all("button[data-open]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    for (const part of all("main details")) part.open = button.dataset.open === "yes";
  });
}
// Print everything, and let links lead into what is closed.
addEventListener("beforeprint", () => all("details").forEach(part => { part.open = true; }));
addEventListener("hashchange", () => {
  for (const part of all(":target > details")) part.open = true;
});

// What the pointer or the keyboard is at.
const tip = make("div", { id: "tip", role: "tooltip", hidden: true });
document.body.append(tip);
const tell = (x, y, ...children) => {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const left = x + 14 + tip.offsetWidth > innerWidth ? x - 14 - tip.offsetWidth : x + 14;
  const top = y + 18 + tip.offsetHeight > innerHeight ? y - 10 - tip.offsetHeight : y + 18;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
};
const hush = () => { tip.hidden = true; };
// What has the focus keeps its tip: moving the focus scrolls.
let scrolled = hush;
addEventListener("scroll", () => scrolled(), { capture: true, passive: true });
addEventListener("keydown", event => {
  if (event.key !== "Escape") return;
  scrolled = hush;
  hush();
});

for (const term of all("a.term")) {
  const meaning = term.title;
  term.removeAttribute("title");
  term.setAttribute("aria-description", meaning);
  const show = () => {
    const box = term.getBoundingClientRect();
    tell(box.left, box.bottom - 12, meaning);
  };
  term.addEventListener("pointerenter", show);
  term.addEventListener("focus", () => { scrolled = show; show(); });
  term.addEventListener("pointerleave", hush);
  term.addEventListener("blur", () => { scrolled = hush; hush(); });
}

// The legend.
for (const box of all(".legend input")) {
  box.hidden = false;
  const show = () => {
    for (const line of all(`polyline[data-mode="${box.value}"]`, box.closest(".scenario"))) {
      line.classList.toggle("off", !box.checked);
    }
  };
  box.addEventListener("change", show);
  show();
}

// As the tables show them.
const digits = value => {
  if (Math.abs(value) >= 99.5) return value.toFixed(0);
  return value === 0 ? "0" : Number(value.toPrecision(3)).toString();
};
const read = (scale, value) => {
  if (scale === "log-time") {
    const third = Math.min(2, Math.max(-1, Math.floor(value / 3)));
    return `${digits(10 ** (value - 3 * third))} ${["ns", "µs", "ms", "s"][third + 1]}`;
  }
  if (scale !== "nines") return `${digits(value)} ${scale}`;
  return value >= 5.5 ? "the longest call" : `${Number((100 - 10 ** (2 - value)).toFixed(3))} % of calls`;
};
// Round numbers within a range.
const round = (low, high) => {
  const power = 10 ** Math.floor(Math.log10((high - low) / 4));
  const step = [1, 2, 2.5, 5, 10].map(one => one * power).find(one => (high - low) / one <= 4.001);
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) {
    ticks.push(Number(at.toPrecision(9)));
  }
  return [step, ticks];
};
const draw = (name, attributes, text = "") => {
  const element = document.createElementNS(document.querySelector("svg").namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
};

for (const chart of all("svg.chart")) {
  const plot = chart.querySelector(".plot");
  const ticks = chart.querySelector(".ticks");
  const [home, homeTicks] = [plot.getAttribute("viewBox"), [...ticks.children]];
  const [left, top, width, height] = ["x", "y", "width", "height"].map(key => +plot.getAttribute(key));
  const isSeries = chart.dataset.x === "s";
  const cursor = draw("path", { class: "cursor" });
  const selection = draw("rect", { class: "selection", y: top, height, width: 0 });
  chart.append(selection, cursor);
  chart.tabIndex = 0;
  let view, at, from, drag;
  const setView = text => {
    plot.setAttribute("viewBox", text);
    view = text.split(" ").map(Number);
  };
  setView(home);
  const lines = () => all("polyline:not(.off)", plot).map(line => [line, [...line.points]]);
  const points = () => lines().flatMap(([, points]) => points);
  const toX = x => left + (x - view[0]) / view[2] * width;
  const ofPointer = event => {
    const box = chart.getBoundingClientRect();
    const x = (event.clientX - box.left) * chart.viewBox.baseVal.width / box.width;
    return view[0] + Math.min(1, Math.max(0, (x - left) / width)) * view[2];
  };
  const clear = () => { cursor.setAttribute("d", ""); hush(); at = undefined; };
  // The values at the point of any line that is nearest.
  const point = (x, clientX, clientY) => {
    const places = points().map(one => one.x)
      .filter(one => one >= view[0] && one <= view[0] + view[2]);
    if (!places.length) return clear();
    at = places.reduce((best, one) => Math.abs(one - x) < Math.abs(best - x) ? one : best);
    cursor.setAttribute("d", `M${toX(at).toFixed(1)} ${top}v${height}`);
    const rows = lines().map(([line, points]) => {
      // A point tells of the time up to it, which is longer in slow modes.
      const here = points.find(one => one.x > at - 1e-6);
      const key = make("i", {});
      key.style.background = line.getAttribute("stroke");
      return make("tr", {}, make("th", {}, key, line.dataset.name),
        make("td", {}, here ? read(chart.dataset.y, here.y) : "–"));
    });
    const box = chart.getBoundingClientRect();
    tell(clientX ?? box.left + toX(at) * box.width / chart.viewBox.baseVal.width,
      clientY ?? box.top + 20,
      make("table", {}, make("caption", {}, read(chart.dataset.x, at)), ...rows));
  };
  const zoomTo = (low, high) => {
    const [first, , span] = home.split(" ").map(Number);
    [low, high] = [Math.max(first, low), Math.min(first + span, high)];
    const values = points().filter(one => one.x >= low && one.x <= high).map(one => one.y);
    if (values.length < 2) return;
    const [step] = round(0, Math.max(...values) || 1);
    const most = Math.ceil((Math.max(...values) || 1) / step) * step;
    setView(`${low} ${-most} ${high - low} ${most}`);
    const across = round(low, high)[1].flatMap(value => [
      draw("path", { class: "grid", d: `M${toX(value)} ${top}v${height}` }),
      draw("text", { x: toX(value), y: top + height + 14, "text-anchor": "middle" }, `${value}`)]);
    const up = round(0, most)[1].flatMap(value => {
      const y = top + height * (1 - value / most);
      return [draw("path", { class: "grid", d: `M${left} ${y}h${width}` }),
        draw("text", { x: left - 5, y: y + 4, "text-anchor": "end" }, `${value}`)];
    });
    ticks.replaceChildren(...across, ...up);
    chart.classList.add("zoomed");
    reset.hidden = false;
  };
  const reset = make("button", { type: "button", hidden: true }, "Whole time");
  const unzoom = () => {
    setView(home);
    ticks.replaceChildren(...homeTicks);
    chart.classList.remove("zoomed");
    reset.hidden = true;
    clear();
  };
  reset.addEventListener("click", unzoom);
  const caption = chart.parentElement.querySelector("figcaption");
  if (isSeries) caption.append(make("span", { className: "hint" }, " drag to zoom "), reset);

  // While the pointer is down its moves are followed anywhere.
  const select = event => {
    const ends = [from, ofPointer(event)].map(toX).sort((a, b) => a - b);
    selection.setAttribute("x", ends[0]);
    selection.setAttribute("width", ends[1] - ends[0]);
  };
  const release = event => {
    drag.abort();
    selection.setAttribute("width", 0);
    const [low, high] = [from, ofPointer(event)].sort((a, b) => a - b);
    if (event.type === "pointerup" && high - low > view[2] / 50) zoomTo(low, high);
  };
  if (isSeries) chart.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    event.preventDefault();
    from = ofPointer(event);
    drag = new AbortController();
    addEventListener("pointermove", select, drag);
    addEventListener("pointerup", release, drag);
    addEventListener("pointercancel", release, drag);
  });
  chart.addEventListener("pointermove", event => point(ofPointer(event), event.clientX, event.clientY));
  chart.addEventListener("pointerleave", clear);
  chart.addEventListener("blur", clear);
  chart.addEventListener("dblclick", unzoom);
  chart.addEventListener("keydown", event => {
    const middle = at ?? view[0] + view[2] / 2;
    const places = points().map(one => one.x).sort((a, b) => a - b);
    const keys = {
      ArrowRight: () => point(places.find(one => one > middle + 1e-6) ?? middle),
      ArrowLeft: () => point(places.findLast(one => one < middle - 1e-6) ?? middle),
      "+": () => isSeries && zoomTo(middle - view[2] / 4, middle + view[2] / 4),
      "-": () => isSeries && zoomTo(middle - view[2], middle + view[2]),
      Escape: unzoom,
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
}

// Tables: their headings sort, upwards, downwards, as it was; a field filters long ones.
for (const table of all("main table:not(.facts)")) {
  const [body, heads] = [table.tBodies[0], [...table.tHead.rows[0].cells]];
  const rows = [...body.rows];
  const key = (row, column) => parseFloat(row.cells[column].dataset.v ?? row.cells[column].textContent);
  heads.forEach((head, column) => {
    if (!head.textContent) return;
    const button = make("button", { type: "button", className: "sort", ariaLabel: `sort by ${head.textContent}` });
    head.append(button);
    const isText = rows.every(row => isNaN(key(row, column)));
    button.addEventListener("click", () => {
      const order = { ascending: "descending", descending: "none" }[head.ariaSort] ?? "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.ariaSort = order;
      const sign = { ascending: 1, descending: -1, none: 0 }[order];
      body.append(...rows.toSorted((a, b) => {
        if (isText) return sign * a.cells[column].textContent.localeCompare(b.cells[column].textContent);
        const [x, y] = [key(a, column), key(b, column)];
        // What has no value comes last in either order.
        return isNaN(x) || isNaN(y) ? sign ** 2 * (isNaN(x) - isNaN(y)) : sign * (x - y);
      }));
    });
  });
  if (rows.length < 6 || table.className === "bars") continue;
  const field = make("input", { type: "search", placeholder: "filter rows", ariaLabel: "filter rows" });
  table.parentElement.before(make("p", { className: "tools" }, field));
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
    }
  });
}
