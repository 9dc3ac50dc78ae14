//! Tests of the page in a real browser: headless Chromium.

use crate::common::browser::Page;
use crate::common::{Instance, skipped};
use rxsteer_core::counters::LiveCounter;
use rxsteer_status::{FlowShown, ShareShown};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Names from outside may contain anything.
const HOSTILE: &str =
    "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>";

/// An instance that receives packets continuously.
struct Busy {
    instance: Instance,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Busy {
    fn start() -> Busy {
        let instance = Instance::start(Some(Instant::now()));
        let stop = Arc::<AtomicBool>::default();
        let (status, stopped) = (Arc::clone(&instance.status), Arc::clone(&stop));
        {
            let mut status = status.lock().unwrap();
            let first = status.cpus[0].clone();
            status.cpus =
                (0..4).map(|cpu| rxsteer_status::CpuStatus { cpu, ..first.clone() }).collect();
            status.interfaces[0].why = Some(HOSTILE.to_owned());
            let event = json!({
                "number": 1, "time_ns": 1_790_000_000_000_000_000_u64, "kind": "interface_gone", "text": HOSTILE
            });
            status.events.push(serde_json::from_value(event).unwrap());
            status.largest_flows = (0..20u16).map(flow).collect();
            status.largest_flows[19].flow = HOSTILE.to_owned();
        }
        let thread = std::thread::spawn(move || {
            for round in 0u64.. {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                grow(&mut status.lock().unwrap(), round);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Busy { instance, stop, thread: Some(thread) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn flow(number: u16) -> FlowShown {
    let packets = 1_000_000 / (u64::from(number) + 1);
    let share = |cpu, packets| ShareShown { cpu, packets, bytes: packets * 900 };
    let home = number % 4;
    serde_json::from_value(json!({
        "flow": format!("10.0.0.{number}:{}-192.0.2.1:443/tcp", 40_000 + number),
        "packets": packets, "bytes": packets * 900, "moves": number % 3, "idle_s": 0.1, "tcp_flags": 24,
        "cpus": [share(home, packets - packets / 4), share((home + 1) % 4, packets / 4)], "other_cpus": 0,
    }))
    .unwrap()
}

/// Adds some packets, a different number on each CPU.
fn grow(status: &mut rxsteer_status::Status, round: u64) {
    let wave = |cpu: u64| 400 + 300 * cpu + (round * (cpu + 3) / 7 % 50) * 10;
    for on in &mut status.cpus {
        let packets = wave(u64::from(on.cpu));
        on.counts.delivered += packets;
        on.counts.waiting = packets % 64;
        on.counts.drops.ring_full += u64::from(on.cpu == 3 && round % 50 < 2);
        on.delay.get_or_insert_default().add(&rxsteer_status::Delay {
            buckets: (0..80)
                .map(|bucket| u64::from(bucket > 40 && bucket < 60 + wave(1) as usize % 9))
                .collect(),
        });
    }
    let all: u64 = (0..4).map(wave).sum();
    let received = |counter| match counter {
        LiveCounter::Received | LiveCounter::Redirected => all,
        LiveCounter::Bytes => all * 900,
        LiveCounter::Rfs => all / 2,
        LiveCounter::InSlots => all / 4,
        LiveCounter::Hashed => all / 4,
        LiveCounter::Moves => round % 5,
        LiveCounter::Deferred => round % 3,
        _ => 0,
    };
    status.cpus[0].counts.rx.add(received);
    status.interfaces[0].counts.add(received);
    status.totals.rx.add(received);
    status.totals.delivered += all;
    for flow in &mut status.largest_flows {
        flow.packets += flow.packets / 1000;
    }
}

/// The text of a row's cell below a heading.
fn cell(page: &mut Page, table: &str, row: usize, heading: &str) -> String {
    let found = page.value(&format!(
        "(() => {{ const table = document.getElementById('{table}'); \
          const at = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === '{heading}'); \
          return table.tBodies[0].rows[{row}].cells[at].textContent; }})()"
    ));
    found.as_str().unwrap_or_else(|| panic!("{table} {heading}: {found}")).to_owned()
}

#[test]
fn page_shows_what_the_instance_does() {
    let test = "page::page_shows_what_the_instance_does";
    let Some(mut page) = Page::open() else {
        return skipped(test, "there is no chromium (Debian: chromium)");
    };
    let busy = Busy::start();
    let (running, address) = busy.instance.serve("127.0.0.1:0", None);
    page.set_view(1280, 900, "light");
    page.navigate(&format!("http://{address}/"));
    page.until("document.getElementById('state')?.textContent === 'Connected'");

    // The values change by themselves.
    let first = cell(&mut page, "cpus", 3, "delivered");
    page.until(&format!(
        "document.getElementById('cpus').tBodies[0].rows[3].innerText.includes('{first}') === false"
    ));
    page.until("document.querySelectorAll('#charts path[d]:not([d=\"\"])').length > 3");
    page.until(
        "/\\d/.test(document.getElementById('cpus').tBodies[0].rows[1].cells[3].textContent)",
    );
    page.until(
        "/\\d/.test(document.getElementById('cpus').tBodies[0].rows[1].cells[10].textContent)",
    );

    // Names are inserted only as text.
    let tables = "[...document.querySelectorAll('#interfaces, #events, #flows')]";
    page.until(&format!("{tables}.every((table) => table.textContent.includes('onerror='))"));
    assert_eq!(page.value("document.querySelectorAll('main img, main script').length"), 0);
    assert_eq!(page.value("document.title"), "rxsteer");

    // The filter shows only matching flows, and a message about that.
    page.value("document.getElementById('filter').focus()");
    page.call("Input.insertText", json!({ "text": "10.0.0.7:" }));
    page.until("document.getElementById('flows').tBodies[0].rows.length === 1");
    assert!(cell(&mut page, "flows", 0, "flow").starts_with("10.0.0.7:40007"));
    page.until("document.getElementById('flows').caption.textContent.includes('1 of 20 match')");
    page.value("document.getElementById('filter').value = ''; document.getElementById('filter').dispatchEvent(new Event('input'))");
    page.until("document.getElementById('flows').tBodies[0].rows.length === 20");

    // By keyboard from the filter to the pause button. While paused, the page sends no requests.
    page.press("Tab", 9);
    page.until("document.activeElement.id === 'pause'");
    page.call("Input.dispatchKeyEvent", json!({ "type": "keyDown", "key": " ", "code": "Space", "text": " ", "windowsVirtualKeyCode": 32 }));
    page.call(
        "Input.dispatchKeyEvent",
        json!({ "type": "keyUp", "key": " ", "code": "Space", "windowsVirtualKeyCode": 32 }),
    );
    page.until("document.getElementById('pause').getAttribute('aria-pressed') === 'true'");
    std::thread::sleep(Duration::from_millis(1500));
    let asked = busy.instance.asked.load(Ordering::Relaxed);
    let paused = cell(&mut page, "cpus", 3, "delivered");
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(
        busy.instance.asked.load(Ordering::Relaxed),
        asked,
        "nothing is asked while it is paused"
    );
    assert_eq!(cell(&mut page, "cpus", 3, "delivered"), paused);
    page.value("document.getElementById('pause').click()");
    page.until("document.getElementById('state').textContent === 'Connected'");

    // It survives a restart of the server. A browser's own messages about refused connections are not errors of the
    // page.
    assert_eq!(page.complaints, Vec::<String>::new());
    running.stop().unwrap();
    page.until("document.getElementById('state').textContent.startsWith('Connection lost since ')");
    page.complaints.clear();
    let (running, _) = busy.instance.serve(&address.to_string(), None);
    page.until("document.getElementById('state').textContent === 'Connected'");
    page.complaints.retain(|complaint| !complaint.contains("ERR_CONNECTION_REFUSED"));

    // Once nothing changes any more, the numbers are those of the JSON.
    busy.stop.store(true, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(200));
    let shown = busy.instance.status.lock().unwrap().clone();
    page.until(&format!(
        "document.getElementById('cpus').tBodies[0].rows[3].textContent.replaceAll(',', '').includes('{}')",
        shown.cpus[3].counts.delivered
    ));
    for (row, on) in shown.cpus.iter().enumerate() {
        let digits = |page: &mut Page, heading| cell(page, "cpus", row, heading).replace(',', "");
        assert_eq!(digits(&mut page, "CPU"), on.cpu.to_string());
        assert_eq!(digits(&mut page, "delivered"), on.counts.delivered.to_string());
        assert_eq!(
            digits(&mut page, "received"),
            on.counts.rx.get(LiveCounter::Received).to_string()
        );
        assert_eq!(digits(&mut page, "dropped"), on.counts.drops.total().to_string());
        assert_eq!(digits(&mut page, "backlog"), on.counts.waiting.to_string());
    }
    let rules = [
        LiveCounter::Hashed,
        LiveCounter::InSlots,
        LiveCounter::Rfs,
        LiveCounter::Matched,
        LiveCounter::Moves,
    ];
    for (row, counter) in (2..).zip(rules) {
        let packets = cell(&mut page, "rules", row, "packets").replace(',', "");
        assert_eq!(packets, shown.totals.rx.get(counter).to_string());
    }
    let received = cell(&mut page, "interfaces", 0, "received").replace(',', "");
    assert_eq!(received, shown.interfaces[0].counts.get(LiveCounter::Received).to_string());
    assert_eq!(page.complaints, Vec::<String>::new());
    running.stop().unwrap();
}

#[test]
fn page_is_usable_without_eyes_a_mouse_or_a_wide_screen() {
    let test = "page::page_is_usable_without_eyes_a_mouse_or_a_wide_screen";
    let Some(mut page) = Page::open() else {
        return skipped(test, "there is no chromium (Debian: chromium)");
    };
    let busy = Busy::start();
    let (running, address) = busy.instance.serve("127.0.0.1:0", None);
    page.set_view(320, 640, "dark");
    page.navigate(&format!("http://{address}/"));
    page.until("document.getElementById('state')?.textContent === 'Connected'");
    page.until("document.querySelectorAll('#charts figure').length >= 3");
    // At 320 pixels only tables scroll sideways, not the page.
    assert_eq!(page.value("document.documentElement.scrollWidth <= 320"), true);
    // Every element has a name, and Tab reaches exactly the elements that can be operated.
    for (what, expression) in [
        (
            "controls have labels",
            "[...document.querySelectorAll('input, select')].every((one) => one.labels.length === 1)",
        ),
        (
            "tables have captions",
            "[...document.querySelectorAll('table')].every((one) => one.caption.textContent !== '')",
        ),
        (
            "headings of rows and columns",
            "[...document.querySelectorAll('table th')].every((one) => ['row', 'col'].includes(one.scope))",
        ),
        (
            "charts have a text",
            "[...document.querySelectorAll('figure [role=img]')].every((one) => one.getAttribute('aria-label').includes('Now:'))",
        ),
        (
            "scrolling by keyboard",
            "[...document.querySelectorAll('.scroll')].every((one) => one.tabIndex === 0 && one.getAttribute('aria-labelledby'))",
        ),
        (
            "landmarks",
            "['header', 'main', 'footer'].every((name) => document.querySelectorAll('body > ' + name).length === 1)",
        ),
        (
            "one live region",
            "document.querySelectorAll('[aria-live], [role=status], [role=alert]').length === 1",
        ),
        (
            "sections have names",
            "[...document.querySelectorAll('section')].every((one) => document.getElementById(one.getAttribute('aria-labelledby')))",
        ),
        ("dark", "getComputedStyle(document.body).backgroundColor === 'rgb(13, 17, 23)'"),
    ] {
        assert_eq!(page.value(expression), true, "{what}");
    }
    page.press("Tab", 9);
    assert_eq!(
        page.value("document.activeElement.className"),
        "skip",
        "the first is the way past the controls"
    );
    assert_eq!(
        page.value("getComputedStyle(document.activeElement).outlineStyle"),
        "solid",
        "focus is visible"
    );
    // Text has the contrast of WCAG AA, in light and dark mode.
    for scheme in ["light", "dark"] {
        page.set_view(1280, 900, scheme);
        let contrast = page.value(CONTRAST);
        assert!(contrast.as_f64().unwrap() >= 4.5, "{scheme}: {contrast}");
    }
    if let Some(folder) = std::env::var_os("RXSTEER_SCREENSHOTS") {
        // Removes the focus, since the link past the controls is visible while it has the focus. Then collects some
        // history.
        assert_eq!(page.value("document.activeElement.blur() === undefined"), true);
        std::thread::sleep(Duration::from_secs(45));
        for scheme in ["light", "dark"] {
            page.set_view(1180, 1120, scheme);
            std::thread::sleep(Duration::from_millis(1500));
            let shot = page.call("Page.captureScreenshot", json!({ "format": "png" }));
            let path = std::path::Path::new(&folder).join(format!("page-{scheme}.png.base64"));
            std::fs::write(path, shot["data"].as_str().unwrap()).unwrap();
        }
    }
    assert_eq!(page.complaints, Vec::<String>::new());
    running.stop().unwrap();
}

/// The smallest contrast between text colours and their backgrounds (WCAG 2.2, 1.4.3).
const CONTRAST: &str = "(() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (one) => {
    const own = getComputedStyle(one).backgroundColor;
    return own.endsWith(', 0)') && one.parentElement ? behind(one.parentElement) : own;
  };
  const texts = [...document.querySelectorAll('p, h1, h2, td, th, dt, dd, button, caption, figcaption, li, span.scale, label')];
  return Math.min(...texts.filter((one) => one.textContent.trim() && one.offsetParent).map((one) => {
    const [a, b] = [light(getComputedStyle(one).color), light(behind(one))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }));
})()";
