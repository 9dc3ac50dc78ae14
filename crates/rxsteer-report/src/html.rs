//! The HTML page around the plots.

use std::fmt::Write;

/// The style, for screen and print.
const STYLE: &str = "\
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; background: #f4f5f7; margin: 0 auto;
  max-width: 980px; padding: 24px; }
h1 { font-size: 22px; margin: 0 0 4px; }
h2 { font-size: 15px; margin: 0 0 8px; font-weight: 600; }
section { background: #fff; border: 1px solid #dfe3e8; border-radius: 8px; padding: 16px; margin: 16px 0;
  overflow-x: auto; break-inside: avoid; }
svg { display: block; max-width: 100%; height: auto; }
.head { margin: 0; color: #57606a; }
.advice { background: #e6f1fb; border-left: 4px solid #0072b2; padding: 10px 14px; border-radius: 4px; }
.wrong { background: #fdecea; border-left: 4px solid #c62828; padding: 10px 14px; border-radius: 4px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 14px 3px 0; text-align: right; white-space: nowrap; border-bottom: 1px solid #eef0f2; }
th:first-child, td:first-child { text-align: left; }
pre { background: #fff; border: 1px solid #dfe3e8; border-radius: 8px; padding: 12px; overflow-x: auto;
  font-size: 13px; }
summary { cursor: pointer; }
.foot { color: #8b949e; font-size: 12px; }
";

/// A whole page. `body` is HTML, `title` is text.
pub(crate) fn page(title: &str, body: &str) -> String {
    styled(title, body, "")
}

/// The same with additional style rules, which override the common ones.
pub fn styled(title: &str, body: &str, more_style: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n\
         <style>\n{STYLE}{more_style}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escaped(title)
    )
}

/// A plot with a heading. `svg` is the drawn SVG.
pub fn figure(body: &mut String, heading: &str, svg: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(body, "<section>\n<h2>{}</h2>\n{}\n</section>", escaped(heading), svg.trim());
}

/// A table with a heading; all cells are text.
pub fn table(body: &mut String, heading: &str, header: &[&str], rows: &[Vec<String>]) {
    let _ = writeln!(body, "<section>\n<h2>{}</h2>\n<table>\n<tr>", escaped(heading));
    for cell in header {
        let _ = write!(body, "<th>{}</th>", escaped(cell));
    }
    for row in rows {
        body.push_str("</tr>\n<tr>");
        for cell in row {
            let _ = write!(body, "<td>{}</td>", escaped(cell));
        }
    }
    body.push_str("</tr>\n</table>\n</section>\n");
}

/// Text in which characters with a meaning in HTML are escaped.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(letter),
        }
    }
    safe
}

/// The text with a capital first letter.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
