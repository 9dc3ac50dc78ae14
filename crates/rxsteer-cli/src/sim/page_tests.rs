//! The contents of the page of `--report`.

use super::results;
use rxsteer_report::sim::page::page;

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn each_plot_is_on_the_page() {
    let results =
        results(&["rpc-8", "--seconds", "0.002", "--seeds", "3", "--compare", "none,rps"]);
    let page = page(&results).unwrap();
    for heading in [
        "Throughput, mean with 95 % interval",
        "Throughput, seed by seed",
        "Transactions, mean with 95 % interval",
        "Transactions, seed by seed",
        "CPU time by kind of work",
        "Latency, calls",
        "Figures",
        "Differences",
    ] {
        assert_eq!(count(&page, &format!("<h2>{heading}</h2>")), 1, "{heading}");
    }
    assert_eq!(count(&page, "<svg"), 6);
    assert_eq!(count(&page, "<section>"), count(&page, "</section>"));
    // A point for each of 3 seeds under 2 policies, in 2 plots; 4 percentiles under 2 policies.
    assert_eq!(count(&page, "<circle"), 3 * 2 * 2 + 4 * 2);
    // Nothing is loaded: the only addresses are SVG namespaces.
    assert_eq!(count(&page, "http"), count(&page, "http://www.w3.org/2000/svg"));
    assert!(!page.contains("<script") && !page.contains("src="));
}

#[test]
fn bars_are_as_high_as_figures_say() {
    let results = results(&["router-one-queue", "--seconds", "0.002", "--compare", "none,rps"]);
    let page = page(&results).unwrap();
    let plot = page.split("<svg").nth(1).unwrap();
    let heights: Vec<f64> = plot
        .split("<rect ")
        .skip(2)
        .filter_map(|rect| rect.split("height=\"").nth(1)?.split('"').next()?.parse().ok())
        .collect();
    let mean = |cell: usize| {
        results.cells[cell].mean("bits_per_second", rxsteer_sim::metric::Subject::Run)
    };
    assert_eq!(heights.len(), 2, "{plot}");
    let (drawn, results) = (heights[1] / heights[0], mean(1) / mean(0));
    assert!((drawn / results - 1.0).abs() < 0.02, "drawn {drawn}, got {results}");
}

#[test]
fn many_policies_and_long_names_have_room() {
    let many = "none,rps,sparse,sparse:loops=1,sparse:loops=2,sparse:loops=3,sparse:loops=5,rfs,rfs+sparse,bound:0=1,1=2,bound:0=3,1=0";
    let results =
        results(&["router-one-queue", "--seconds", "0.001", "--seeds", "2", "--compare", many]);
    let page = page(&results).unwrap();
    let plots: Vec<&str> = page.split("<svg").skip(1).collect();
    assert_eq!(plots.len(), 4);
    // The legend of the latencies takes two rows: one more entry is at the left edge than with one row.
    let last = plots[3].split("</svg>").next().unwrap();
    assert_eq!(count(last, "x=\"94\""), 2, "{last}");
}

#[test]
fn what_people_wrote_is_no_markup() {
    let title = "--set=title=<script>alert(\"1\")</script> & 'more'";
    let mut results = results(&["rpc-8", "--seconds", "0.001", title]);
    results.cells[0].scenario.traffic[0].name = "<i>x</i>".to_owned();
    results.cells[0].label = "<b>rps</b>".to_owned();
    results.text = "</pre><script>".to_owned();
    let page = page(&results).unwrap();
    for markup in ["<script>", "<i>", "<b>"] {
        assert!(!page.contains(markup), "{markup}");
    }
    assert!(
        page.contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;more&#39;")
    );
    assert!(page.contains("&lt;b&gt;rps&lt;/b&gt;") && page.contains("&lt;/pre&gt;"));
}

#[test]
fn page_of_nothing_is_a_page() {
    let mut results = results(&["rpc-8", "--seconds", "0.001", "--compare", "none,rps"]);
    for cell in &mut results.cells {
        cell.runs.clear();
    }
    (results.differences, results.interrupted) = (Vec::new(), true);
    let page = page(&results).unwrap();
    assert!(page.contains("interrupted: 0, 0 of 10 seeds are complete"), "{page}");
    assert_eq!(count(&page, "<svg"), 0);
}
