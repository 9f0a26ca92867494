//! The plots as SVG, alone and on a page.

use std::fmt::Write;

use ncpu_table::figure;

use super::plot::{extent, one, ticks};
use super::{Scale, layers};
use crate::html::{self, Figure, Section};

const WIDTH: f64 = 620.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;

/// Okabe and Ito's colours, which colour-blind readers can distinguish.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Works on white and on black.
const STYLE: &str = "\
svg.scale{font:13px system-ui,sans-serif;color:light-dark(#1a1d23,#e4e7ec)}\
.scale text{fill:currentColor}.scale .soft{fill:light-dark(#5a6270,#a0a8b5)}\
.scale .grid{stroke:light-dark(#e3e6eb,#2c313a)}.scale .axis{stroke:light-dark(#8a919c,#7c8490)}\
.scale .linear{stroke:light-dark(#8a919c,#7c8490);stroke-dasharray:5 4;fill:none}\
.scale .machine{stroke:light-dark(#8a919c,#7c8490);stroke-dasharray:2 3}\
.scale .line{fill:none;stroke-width:2}.scale .amdahl{fill:none;stroke-width:1.3;stroke-dasharray:7 4}\
.scale .band{opacity:.16}.scale .error{stroke-width:1.5}.scale .paper{fill:light-dark(#fff,#14161a)}";

/// A box with axes, N along the bottom.
struct Panel {
    to: f64,
    top: f64,
}

impl Panel {
    fn x(&self, n: f64) -> f64 {
        LEFT + n / self.to * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, v: f64) -> f64 {
        TOP + (1.0 - v / self.top) * (HEIGHT - TOP - BOTTOM)
    }

    fn frame(&self, out: &mut String, title: &str, unit: &str) {
        let (x0, x1, y0, y1) = (self.x(0.0), self.x(self.to), self.y(0.0), self.y(self.top));
        let _ = write!(out, "<text x={x0} y=20 font-weight=600>{}</text>", html::esc(title));
        for t in ticks(self.top).into_iter().filter(|t| *t <= self.top * 1.001) {
            let y = self.y(t);
            let _ = write!(
                out,
                "<line class=grid x1={x0} x2={x1} y1={y:.1} y2={y:.1} />\
                 <text class=soft x={:.1} y={:.1} text-anchor=end>{}{unit}</text>",
                x0 - 6.0,
                y + 4.0,
                figure(t)
            );
        }
        for t in ticks(self.to).into_iter().filter(|t| *t <= self.to) {
            let _ = write!(
                out,
                "<text class=soft x={:.1} y={:.1} text-anchor=middle>{}</text>",
                self.x(t),
                y0 + 18.0,
                figure(t)
            );
        }
        let _ = write!(
            out,
            "<path class=axis fill=none d=\"M{x0} {y1}V{y0}H{x1}\" />\
             <text class=soft x={:.1} y={:.1} text-anchor=middle>N</text>",
            (x0 + x1) / 2.0,
            y0 + 38.0
        );
    }

    /// A line through points, cut where it leaves the box.
    fn line(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut d = String::new();
        for (n, v) in
            points.filter(|(n, v)| *n <= self.to * 1.0001 && *v <= self.top * 1.0001 && v.is_finite())
        {
            let _ = write!(d, "{}{:.1} {:.1}", if d.is_empty() { "M" } else { "L" }, self.x(n), self.y(v));
        }
        d
    }
}

fn open(out: &mut String, label: &str, at: f64) {
    let _ = write!(
        out,
        "<svg class=scale x={at} width={WIDTH} height={HEIGHT} viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"{}\">",
        html::esc(label)
    );
}

fn mark(out: &mut String, panel: &Panel, n: f64, v: (f64, f64, f64), colour: &str, title: &str) {
    let (x, y) = (panel.x(n), panel.y(v.0));
    let (low, high) = (panel.y(v.1), panel.y(v.2.min(panel.top)));
    let _ = write!(
        out,
        "<g><title>{}</title><line class=error stroke={colour} x1={x:.1} x2={x:.1} y1={low:.1} y2={high:.1} />\
         <circle cx={x:.1} cy={y:.1} r=4.5 fill={colour} /></g>",
        html::esc(title)
    );
}

/// Absolute throughput, beside linear scaling.
fn throughput(scale: &Scale, at: f64) -> String {
    let mut out = String::new();
    let (to, top) = extent(scale);
    let p = Panel { to, top: top * 1.12 };
    open(&mut out, "Throughput over N", at);
    let title = match scale.metric.as_str() {
        "throughput" | "" => "Throughput".to_string(),
        metric => format!("Throughput: {metric}"),
    };
    p.frame(&mut out, &title, "");
    if let Some(machine) = scale.series.iter().find_map(|s| s.machine).filter(|m| *m <= to) {
        let x = p.x(machine);
        let _ = write!(
            out,
            "<line class=machine x1={x:.1} x2={x:.1} y1={:.1} y2={:.1} /><text class=soft x={:.1} y={:.1}>all CPUs</text>",
            p.y(0.0),
            p.y(p.top),
            x + 4.0,
            p.y(p.top) + 12.0
        );
    }
    for (i, series) in scale.series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        if let Some(one) = one(series) {
            let end = to.min(p.top / one);
            let _ = write!(
                out,
                "<path class=linear d=\"{}\" />",
                p.line([(0.0, 0.0), (end, one * end)].into_iter())
            );
        }
        // Of several curves only the fullest law of each, lest they hide each other.
        let few = if scale.series.len() > 1 { series.laws.len().saturating_sub(1) } else { 0 };
        for law in &series.laws[few..] {
            let last = series.laws.last().is_some_and(|l| l.name == law.name);
            if last {
                let banded: Vec<(f64, (f64, f64))> =
                    law.line.iter().filter_map(|l| l.band.map(|b| (l.n, (b.0, b.1.min(p.top))))).collect();
                let up = banded.iter().map(|(n, b)| (*n, b.1));
                let down = banded.iter().rev().map(|(n, b)| (*n, b.0));
                let _ = write!(out, "<path class=band fill={colour} d=\"{}Z\" />", p.line(up.chain(down)));
            }
            let class = if last { "line" } else { "amdahl" };
            let _ = write!(
                out,
                "<path class={class} stroke={colour} d=\"{}\"><title>{}</title></path>",
                p.line(law.line.iter().map(|l| (l.n, l.x))),
                html::esc(&law.name)
            );
        }
        for point in &series.points {
            let title = format!("N = {}: {}", point.n, figure(point.x.0));
            mark(&mut out, &p, point.n, point.x, colour, &title);
        }
        if let Some(law) = series.laws.iter().find(|l| l.peak.best <= to) {
            let (n, v) = (law.peak.best, law.top.best);
            let _ = write!(
                out,
                "<path stroke={colour} stroke-width=2 d=\"M{0:.1} {1:.1}v-12\" /><text x={0:.1} y={2:.1} \
                 text-anchor=middle>peak {3}</text>",
                p.x(n),
                p.y(v) - 6.0,
                p.y(v) - 22.0,
                figure((n * 10.0).round() / 10.0)
            );
        }
    }
    names(&mut out, scale, HEIGHT - BOTTOM - 18.0 * scale.series.len() as f64 - 4.0);
    out + "</svg>"
}

/// Speedup over N: how much of each CPU is left.
fn efficiency(scale: &Scale, at: f64) -> String {
    let mut out = String::new();
    let (to, _) = extent(scale);
    let highest =
        scale.series.iter().flat_map(|s| s.points.iter().map(|p| p.speedup / p.n)).fold(1.0, f64::max);
    let p = Panel { to, top: 100.0 * (highest * 1.05).max(1.05) };
    open(&mut out, "Efficiency over N", at);
    p.frame(&mut out, "Efficiency: speedup over N, each curve against its own start", " %");
    let _ = write!(out, "<path class=linear d=\"{}\" />", p.line([(0.0, 100.0), (to, 100.0)].into_iter()));
    for (i, series) in scale.series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        if let Some(law) = series.laws.last() {
            let line = law.line.iter().map(|l| (l.n, 100.0 * l.speedup / l.n));
            let _ = write!(out, "<path class=line stroke={colour} d=\"{}\" />", p.line(line));
        }
        for point in series.points.iter().filter(|p| p.speedup.is_finite()) {
            let e = |x: f64| 100.0 * point.speedup * x / point.x.0 / point.n;
            let v = (e(point.x.0), e(point.x.1), e(point.x.2));
            mark(&mut out, &p, point.n, v, colour, &format!("N = {}: {:.1} %", point.n, v.0));
        }
    }
    names(&mut out, scale, TOP + 26.0);
    out + "</svg>"
}

/// The curves' names at the right, from `top` down.
fn names(out: &mut String, scale: &Scale, top: f64) {
    if scale.series.len() < 2 {
        return;
    }
    for (i, series) in scale.series.iter().enumerate() {
        let y = top + 12.0 + 18.0 * i as f64;
        let _ = write!(
            out,
            "<circle cx={:.1} cy={:.1} r=4.5 fill={} /><text x={:.1} y={:.1}>{}</text>",
            WIDTH - 150.0,
            y - 4.0,
            COLOURS[i % COLOURS.len()],
            WIDTH - 140.0,
            y,
            html::esc(&series.name)
        );
    }
}

impl Scale {
    /// Both plots as one SVG file, in the reader's light or dark.
    pub fn svg(&self) -> String {
        let body = throughput(self, 0.0) + &efficiency(self, WIDTH);
        // On a page markup without quotes will do; XML wants them, and says itself what it is.
        let body = html::quoted(&body);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"scale\" width=\"{0}\" height=\"{HEIGHT}\" viewBox=\"0 0 {0} {HEIGHT}\">\
             <style>svg{{color-scheme:light dark}}{STYLE}</style><rect class=\"paper\" width=\"100%\" height=\"100%\"/>{body}</svg>\n",
            2.0 * WIDTH
        )
    }

    /// One self-contained page.
    pub fn html(&self) -> String {
        let mut figures = Vec::new();
        if let [series] = self.series.as_slice()
            && let Some(law) = series.laws.last()
        {
            let percent = |x: f64| format!("{:.2} %", 100.0 * x);
            let band = |q: &super::Quantity, how: &dyn Fn(f64) -> String| {
                q.band.map_or("no band".to_string(), |(l, h)| format!("{}–{}", how(l), how(h)))
            };
            let whole =
                |x: f64| if x.is_finite() { figure((x * 10.0).round() / 10.0) } else { "none".into() };
            figures.push(Figure::new("contention", percent(law.sigma.best), band(&law.sigma, &percent)));
            if law.name == "USL" {
                figures.push(Figure::new("coherency", figure(law.kappa.best), band(&law.kappa, &figure)));
                figures.push(Figure::new("peak at N", whole(law.peak.best), band(&law.peak, &whole)));
            }
            figures.push(Figure::new("one does", figure(law.lambda.best), band(&law.lambda, &figure)));
        }
        let mut plots = format!(
            "<style>{STYLE} .scale{{max-width:100%;height:auto}}\
             .plots{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));gap:1rem}}</style><div class=plots>"
        );
        plots += &throughput(self, 0.0);
        plots += &efficiency(self, 0.0);
        plots += "</div>";
        for series in &self.series {
            if self.series.len() > 1 {
                let _ = write!(plots, "<h3>{}</h3>", html::esc(&series.name));
            }
            plots += "<ul>";
            for words in series.lines() {
                let _ = write!(plots, "<li>{}</li>", html::esc(&words));
            }
            plots += "</ul>";
        }
        let mut sections = vec![Section {
            id: "curves",
            title: "Curves",
            lead: "Solid: the law fitted, with its 95 % band; long dashes: Amdahl's law where the USL is fitted too; short dashes: linear \
                   scaling. Absolute throughput is the yield of the machine; efficiency is the remaining yield of each CPU.",
            body: plots,
        }];
        let mut body = String::new();
        if let Some(points) = &self.points {
            html::table_of(&mut body, points, "points");
        }
        sections.push(Section {
            id: "points",
            title: "Points",
            lead: "Measured figures, and those of the law.",
            body,
        });
        if let Some(table) = &self.layers {
            let (ns, all) = layers::by_growth(table);
            let mut body = stacked(&ns, &all);
            let _ = write!(body, "<p class=advice>{}</p>", html::esc(&layers::verdict(&ns, &all)));
            html::table_of(&mut body, table, "layers");
            sections.push(Section {
                id: "growth",
                title: "Layers",
                lead: "CPU time that a unit of work takes, by layer; that of the program's own at the smallest N is 100. Linear scaling would keep it there.",
                body,
            });
        }
        html::plain(&format!("ncpu scale: {}", self.command), &self.command, &figures, &self.notes, &sections)
    }
}

/// Bars of the layers at each N.
fn stacked(ns: &[f64], all: &[layers::Layer]) -> String {
    let mut out = String::new();
    let height = |i: usize| all.iter().map(|l| l.costs[i]).sum::<f64>();
    let top = (0..ns.len()).map(height).fold(1.0, f64::max) * 1.05;
    let p = Panel { to: 1.0, top };
    open(&mut out, "CPU time of a unit of work by layer and N", 0.0);
    let _ = write!(out, "<text x={LEFT} y=20 font-weight=600>CPU time of a unit of work</text>");
    for t in ticks(top).into_iter().filter(|t| *t <= top) {
        let y = p.y(t);
        let _ = write!(
            out,
            "<line class=grid x1={LEFT} x2={:.1} y1={y:.1} y2={y:.1} /><text class=soft x={:.1} y={:.1} text-anchor=end>{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            figure(t)
        );
    }
    let slot = (WIDTH - LEFT - RIGHT) / ns.len().max(1) as f64;
    for (i, n) in ns.iter().enumerate() {
        let mut below = 0.0;
        let x = LEFT + slot * (i as f64 + 0.15);
        // The layer that grows most goes on top, where its growth is visible.
        for layer in all.iter().rev().filter(|l| l.costs[i] > 0.0) {
            let (y1, y0) = (p.y(below + layer.costs[i]), p.y(below));
            let _ = write!(
                out,
                "<rect class={} fill=\"var(--c)\" x={x:.1} y={y1:.1} width={:.1} height={:.1}><title>N = {n}: {} {:.1}</title></rect>",
                html::layer_class(&layer.name),
                slot * 0.7,
                (y0 - y1).max(0.0),
                html::esc(&layer.name),
                layer.costs[i]
            );
            below += layer.costs[i];
        }
        let _ = write!(
            out,
            "<text class=soft x={:.1} y={:.1} text-anchor=middle>N = {n}</text>",
            x + slot * 0.35,
            p.y(0.0) + 18.0
        );
    }
    out += "</svg><p class=key>";
    for layer in all.iter().filter(|l| l.costs.iter().any(|c| *c >= 1.0)) {
        let _ = write!(
            out,
            "<span><i class={}></i>{}</span>",
            html::layer_class(&layer.name),
            html::esc(&layer.name)
        );
    }
    out + "</p>"
}
