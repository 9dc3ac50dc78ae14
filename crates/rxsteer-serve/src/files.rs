//! The files of the page, which are part of the program: the server reads no other file.

/// A file of the page.
#[derive(Debug)]
pub(crate) struct File {
    /// The path in the URL.
    pub(crate) path: &'static str,
    /// Its type.
    pub(crate) content_type: &'static str,
    /// Its content.
    pub(crate) bytes: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! files {
    ($($path:literal, $name:literal, $content_type:expr;)*) => {
        /// Every file.
        pub(crate) const FILES: &[File] = &[$(File {
            path: $path,
            content_type: $content_type,
            bytes: include_bytes!(concat!("../page/", $name)),
        }),*];
    };
}

files! {
    "/", "index.html", "text/html; charset=utf-8";
    "/style.css", "style.css", "text/css; charset=utf-8";
    "/icon.svg", "icon.svg", "image/svg+xml";
    "/app.js", "app.js", SCRIPT;
    "/tables.js", "tables.js", SCRIPT;
    "/charts.js", "charts.js", SCRIPT;
    "/text.js", "text.js", SCRIPT;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names come from outside (interfaces, flows, events): the page must insert them only as text.
    #[test]
    fn page_makes_no_html_of_text_and_loads_nothing_from_outside() {
        for file in FILES {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "Function(",
                "srcdoc",
                "createContextualFragment",
                "DOMParser",
                "https://",
                "//cdn",
                "@import",
                "style=",
                "onclick=",
            ] {
                assert!(!text.contains(word), "{} has {word}", file.path);
            }
            // The namespace of SVG is a name, and is not loaded.
            let rest = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!rest.contains("http://"), "{}", file.path);
        }
        let page = std::str::from_utf8(FILES[0].bytes).unwrap();
        assert!(
            !page.contains("<style") && !page.contains("<script>"),
            "the CSP refuses it inline"
        );
    }
}
