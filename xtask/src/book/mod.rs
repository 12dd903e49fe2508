//! `cargo xtask book`: checks the pages and their links, and builds the guide as a book, if mdBook is installed.

mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, answers, run as run_command};
use crate::metadata;
use page::{Link, Page};

/// The folder of the book's pages, from the root.
const DOCS: &str = "docs";
/// The list of chapters.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Two other pages that name every chapter: one for users, with links, and one for developers.
const README: &str = "README.md";
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// Where readers of the book find what is not part of it.
const REPOSITORY: &str = "https://github.com/toroni-bus/toroni/blob/main";

pub(crate) fn run() -> Result<(), Failure> {
    println!("{}", check()?);
    let staged = metadata::members()?.target_directory.join("book");
    stage(&staged)?;
    if !answers(Command::new("mdbook").arg("--version")) {
        println!("not built: install mdBook with `cargo install mdbook`");
        return Ok(());
    }
    run_command(Command::new("mdbook").arg("build").arg(&staged))?;
    println!("{}", staged.join("book/index.html").display());
    Ok(())
}

/// Checks that every page of the guide is a chapter, and that the links of all pages of the repository lead somewhere.
pub(crate) fn check() -> Result<String, Failure> {
    let pages = pages()?;
    let mut wrong = chapters(&pages);
    let all = listed(&pages);
    wrong.extend(unnamed(&all, &linked(&pages, README), README));
    wrong.extend(unnamed(&all, &in_tree(&metadata::text(Path::new(ARCHITECTURE))?), ARCHITECTURE));
    let mut links = 0;
    for (path, page) in &pages {
        for link in &page.links {
            links += 1;
            if let Err(why) = follow(path, link, &pages) {
                wrong.push(format!("{}:{}: {why}", path.display(), link.line));
            }
        }
    }
    if wrong.is_empty() { Ok(format!("{links} links")) } else { Err(Failure(wrong.join("\n"))) }
}

/// Reads all Markdown files that git knows or would add, by their paths from the root.
fn pages() -> Result<BTreeMap<PathBuf, Page>, Failure> {
    let mut pages = BTreeMap::new();
    for name in metadata::files(&["*.md"])? {
        pages.insert(name.clone(), Page::of(&metadata::text(&name)?));
    }
    Ok(pages)
}

/// Returns which pages are not in the list of chapters, or are there twice.
fn chapters(pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let summary = Path::new(SUMMARY);
    let mut wrong = Vec::new();
    let mut listed = BTreeSet::new();
    for link in pages.get(summary).map(|page| &*page.links).unwrap_or_default() {
        if !listed.insert(Path::new(DOCS).join(&link.target)) {
            wrong.push(format!("{SUMMARY}:{}: {} is listed twice", link.line, link.target));
        }
    }
    let is_chapter = |path: &&PathBuf| path.starts_with(DOCS) && *path != summary;
    for page in pages.keys().filter(is_chapter).filter(|path| !listed.contains(*path)) {
        wrong.push(format!("{SUMMARY}: {} is missing", page.display()));
    }
    wrong
}

/// The chapters, by their paths from the root.
fn listed(pages: &BTreeMap<PathBuf, Page>) -> BTreeSet<PathBuf> {
    let links = pages.get(Path::new(SUMMARY)).map(|page| &*page.links).unwrap_or_default();
    links.iter().map(|link| Path::new(DOCS).join(&link.target)).collect()
}

/// The pages to which a page leads.
fn linked(pages: &BTreeMap<PathBuf, Page>, from: &str) -> BTreeSet<PathBuf> {
    let links = pages.get(Path::new(from)).map(|page| &*page.links).unwrap_or_default();
    let destinations = links.iter().map(|link| destination(Path::new(from), &link.target));
    destinations.filter_map(|found| Some(found.ok()??.0)).collect()
}

/// The pages that the drawing of the folders names beside `docs/`.
fn in_tree(architecture: &str) -> BTreeSet<PathBuf> {
    let start = format!("{DOCS}/ ");
    let mut lines = architecture.lines().skip_while(|line| !line.starts_with(&start));
    let first = lines.next().and_then(|line| line.strip_prefix(&start)).unwrap_or_default();
    let others = lines.take_while(|line| line.starts_with("    "));
    let names = std::iter::once(first).chain(others).flat_map(|line| line.split(','));
    let names = names.map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| Path::new(DOCS).join(format!("{name}.md"))).collect()
}

/// Returns which chapters a page does not name.
fn unnamed(chapters: &BTreeSet<PathBuf>, named: &BTreeSet<PathBuf>, by: &str) -> Vec<String> {
    let missing = chapters.difference(named);
    missing.map(|page| format!("{by}: does not name the chapter {}", page.display())).collect()
}

/// Fails if a link does not lead to a file of the repository, or not to a heading of it.
fn follow(from: &Path, link: &Link, pages: &BTreeMap<PathBuf, Page>) -> Result<(), String> {
    let Some((path, anchor)) = destination(from, &link.target)? else { return Ok(()) };
    if !metadata::root().join(&path).exists() {
        return Err(format!("there is no {}", path.display()));
    }
    match (anchor, pages.get(&path)) {
        (None, _) => Ok(()),
        (Some(anchor), Some(page)) if page.anchors.contains(anchor) => Ok(()),
        (Some(anchor), Some(_)) => Err(format!("{} has no heading #{anchor}", path.display())),
        (Some(anchor), None) => Err(format!("{} is no page with #{anchor}", path.display())),
    }
}

/// Returns the path from the root and the anchor of a link, or `None` if it leads to another site.
fn destination<'a>(
    from: &Path,
    target: &'a str,
) -> Result<Option<(PathBuf, Option<&'a str>)>, String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(None);
    }
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (target, None),
    };
    if path.is_empty() {
        return Ok(Some((from.to_owned(), anchor)));
    }
    let mut found = from.parent().unwrap_or(Path::new("")).to_owned();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if found.pop() => {}
            ".." => return Err(format!("{target} leads out of the repository")),
            part => found.push(part),
        }
    }
    if path.starts_with('/') {
        return Err(format!("{target} is absolute: write it relative to the page"));
    }
    Ok(Some((found, anchor)))
}

/// Copies the book to a folder. Links to what is not part of it lead to the repository there.
fn stage(folder: &Path) -> Result<(), Failure> {
    let cannot = |error| Failure(format!("cannot write to {}: {error}", folder.display()));
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(cannot)?;
    }
    fs::create_dir_all(folder).map_err(cannot)?;
    let root = metadata::root();
    fs::copy(root.join(DOCS).join("book.toml"), folder.join("book.toml")).map_err(cannot)?;
    let pages = pages()?;
    for path in pages.keys().filter(|path| path.starts_with(DOCS)) {
        let text = fs::read_to_string(root.join(path)).map_err(cannot)?;
        let leads_away = |target: &str| {
            let (found, anchor) = destination(path, target).ok()??;
            let is_inside = pages.contains_key(&found) && found.starts_with(DOCS);
            let anchor = anchor.map_or_else(String::new, |anchor| format!("#{anchor}"));
            (!is_inside).then(|| format!("{REPOSITORY}/{}{anchor}", found.display()))
        };
        let to = folder.join(path.strip_prefix(DOCS).unwrap_or(path));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(cannot)?;
        }
        fs::write(&to, page::with_links(&text, &leads_away)).map_err(cannot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_a_chapter_and_every_link_leads_somewhere() {
        check().unwrap();
    }

    #[test]
    fn wrong_links_are_found() {
        let pages = pages().unwrap();
        let follow = |target: &str| {
            let link = Link { line: 1, target: target.to_owned() };
            follow(Path::new("docs/guide.md"), &link, &pages)
        };
        for good in
            ["#limits", "security.md", "../README.md#licence", "containers/pod.yaml", "https://x/y"]
        {
            assert_eq!(follow(good), Ok(()), "{good}");
        }
        for bad in
            ["#no-such-heading", "nowhere.md", "security.md#none", "../../x", "/docs/guide.md"]
        {
            assert!(follow(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_page_that_is_no_chapter_is_found() {
        let page = |text| Page::of(text);
        let mut pages = BTreeMap::from([
            (PathBuf::from("docs/SUMMARY.md"), page("- [A](a.md)\n- [A](a.md)\n")),
            (PathBuf::from("docs/a.md"), page("# A\n")),
            (PathBuf::from("README.md"), page("# R\n")),
        ]);
        assert_eq!(chapters(&pages), ["docs/SUMMARY.md:2: a.md is listed twice"]);
        let names = |text: &str| unnamed(&listed(&pages), &in_tree(text), "x");
        assert_eq!(names("crates/  a\ndocs/    b, c,\n         a\nxtask/   d\n"), [""; 0]);
        assert_eq!(
            names("docs/    b, c\nxtask/   a\n"),
            ["x: does not name the chapter docs/a.md"]
        );
        assert_eq!(linked(&pages, "README.md"), BTreeSet::new());
        pages.insert(PathBuf::from("docs/b.md"), page("# B\n"));
        assert!(chapters(&pages).iter().any(|wrong| wrong.contains("docs/b.md is missing")));
    }
}
