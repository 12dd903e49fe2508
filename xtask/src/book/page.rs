//! What a page of Markdown contains: headings as anchors, and links.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub(super) struct Page {
    /// What a link to a place of this page may name.
    pub(super) anchors: BTreeSet<String>,
    pub(super) links: Vec<Link>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) line: usize,
    pub(super) target: String,
}

impl Page {
    pub(super) fn of(text: &str) -> Self {
        let mut page = Self { anchors: BTreeSet::new(), links: Vec::new() };
        let mut seen = BTreeMap::new();
        let mut heading: Option<String> = None;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let words = heading.take().unwrap_or_default();
                    page.anchors.insert(anchor(&words, &mut seen));
                }
                Event::Text(words) | Event::Code(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    let line = text[..range.start].lines().count().max(1);
                    let is_first = text[..range.start].ends_with('\n') || range.start == 0;
                    let line = if is_first && range.start > 0 { line + 1 } else { line };
                    page.links.push(Link { line, target: dest_url.into_string() });
                }
                _ => {}
            }
        }
        page
    }
}

/// Returns the anchor that code hosts and mdBook give to a heading.
fn anchor(heading: &str, seen: &mut BTreeMap<String, usize>) -> String {
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    let name: String = heading.trim().to_lowercase().chars().filter(kept).collect();
    let name = name.replace(' ', "-");
    let count = seen.entry(name.clone()).or_default();
    *count += 1;
    if *count == 1 { name } else { format!("{name}-{}", *count - 1) }
}

/// Returns the text with other targets of links, where `change` returns one.
pub(super) fn with_links(text: &str, change: &dyn Fn(&str) -> Option<String>) -> String {
    let mut changes: Vec<(Range<usize>, String)> = Vec::new();
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let Event::Start(Tag::Link { dest_url, .. }) = event else { continue };
        let Some(target) = change(&dest_url) else { continue };
        // The target is the last part of `[words](target)`.
        let source = &text[range.clone()];
        if let Some(at) = source.rfind(&format!("({dest_url})")) {
            let start = range.start + at + 1;
            changes.push((start..start + dest_url.len(), target));
        }
    }
    let mut changed = text.to_owned();
    for (range, target) in changes.into_iter().rev() {
        changed.replace_range(range, &target);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# One `two`, three\n\nA [link](a.md#b) and `[no](link)`.\n\n```text\n[no](link)\n```\n\n## x\n## x\n\n\
        | a |\n|---|\n| [in a table](../c) |\n";

    #[test]
    fn headings_and_links_are_found() {
        let page = Page::of(TEXT);
        let anchors = ["one-two-three", "x", "x-1"].map(str::to_owned);
        assert_eq!(page.anchors, BTreeSet::from(anchors));
        let link = |line, target: &str| Link { line, target: target.to_owned() };
        assert_eq!(page.links, [link(3, "a.md#b"), link(14, "../c")]);
    }

    #[test]
    fn targets_are_replaced() {
        let change =
            |target: &str| target.strip_prefix("../").map(|rest| format!("https://r/{rest}"));
        assert_eq!(with_links(TEXT, &change), TEXT.replace("](../c)", "](https://r/c)"));
    }
}
