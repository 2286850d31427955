//! Splits a text into blocks of prose: paragraphs, headings, items of lists, and cells of tables.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A piece of prose that ends the sentence in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Block {
    /// The file of the block, or what else tells where the block is found.
    pub(super) file: String,
    /// The line where the block begins, from 1.
    pub(super) line: usize,
    /// The text as the reader sees it. Inline code stands between two backticks, and lines end
    /// where the source ends them.
    pub(super) text: String,
}

/// Returns the blocks of a Markdown text. Fenced code and comments are no prose.
pub(super) fn of_markdown(file: &str, text: &str) -> Vec<Block> {
    let extensions = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
    let mut reading = Reading::of(file, text);
    for (event, range) in Parser::new_ext(text, extensions).into_offset_iter() {
        reading.take(event, range.start);
    }
    reading.finish()
}

/// Returns the blocks of a text that is no Markdown, and that begins at this line of its file. A
/// blank line or a dash begins a block.
pub(super) fn of_plain(file: &str, line: usize, text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (index, text) in text.lines().enumerate() {
        let bare = text.trim();
        let item = bare.strip_prefix("- ").or_else(|| bare.strip_prefix("* "));
        match (blocks.last_mut(), item) {
            _ if bare.is_empty() => open = false,
            (Some(block), None) if open => {
                block.text.push('\n');
                block.text.push_str(bare);
            }
            (_, item) => {
                blocks.push(Block {
                    file: file.to_owned(),
                    line: line + index,
                    text: item.unwrap_or(bare).to_owned(),
                });
                open = true;
            }
        }
    }
    blocks
}

/// The blocks that were read so far.
struct Reading<'a> {
    file: &'a str,
    source: &'a str,
    blocks: Vec<Block>,
    /// The block that is being read, once it has text.
    open: Option<Block>,
    /// Whether the reader is inside a fenced or indented block of code.
    in_code_block: bool,
    /// The block of HTML that is being read, and where it begins.
    html: Option<(usize, String)>,
}

impl<'a> Reading<'a> {
    fn of(file: &'a str, source: &'a str) -> Self {
        Self {
            file,
            source,
            blocks: Vec::new(),
            open: None,
            in_code_block: false,
            html: None,
        }
    }

    fn take(&mut self, event: Event<'_>, start: usize) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => {
                self.close();
                self.in_code_block = true;
            }
            Event::End(TagEnd::CodeBlock) => self.in_code_block = false,
            Event::Start(Tag::HtmlBlock) => {
                self.close();
                self.html = Some((start, String::new()));
            }
            Event::End(TagEnd::HtmlBlock) => {
                if let Some((start, html)) = self.html.take() {
                    self.push(&without_tags(&html), start);
                }
                self.close();
            }
            Event::Start(tag) if !is_inline(&tag) => self.close(),
            Event::End(tag) if !ends_inline(tag) => self.close(),
            Event::Rule => self.close(),
            Event::Text(text) if !self.in_code_block => self.push(&text, start),
            Event::Code(code) => self.push(&format!("`{}`", code.replace('`', "'")), start),
            Event::SoftBreak | Event::HardBreak => self.push("\n", start),
            // A block of HTML comes line by line.
            Event::Html(line) => {
                let html = self.html.get_or_insert_with(|| (start, String::new()));
                html.1.push_str(&line);
            }
            // A tag separates words.
            Event::InlineHtml(html) => self.push(&without_tags(&html), start),
            Event::Start(_)
            | Event::End(_)
            | Event::Text(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::FootnoteReference(_)
            | Event::TaskListMarker(_) => {}
        }
    }

    fn push(&mut self, text: &str, start: usize) {
        if self.open.is_none() && text.trim().is_empty() {
            return;
        }
        let before = self.source.get(..start).unwrap_or_default();
        let open = self.open.get_or_insert_with(|| Block {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            text: String::new(),
        });
        open.text.push_str(text);
    }

    fn close(&mut self) {
        self.blocks.extend(self.open.take());
    }

    fn finish(mut self) -> Vec<Block> {
        self.close();
        self.blocks
    }
}

/// Returns whether the text goes on in the same block. The words for an image are a block of their
/// own.
fn is_inline(tag: &Tag<'_>) -> bool {
    matches!(
        tag,
        Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Link { .. }
    )
}

fn ends_inline(tag: TagEnd) -> bool {
    matches!(
        tag,
        TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough | TagEnd::Link
    )
}

/// Returns what a browser shows of a piece of HTML.
pub(super) fn without_tags(html: &str) -> String {
    let mut shown = String::new();
    let mut rest = html;
    while let Some((before, after)) = rest.split_once('<') {
        shown.push_str(before);
        let end = if after.starts_with("!--") { "-->" } else { ">" };
        // A line break stays one, so that lines are counted as in the source.
        let tag = after.split(end).next().unwrap_or_default();
        shown.push(' ');
        shown.push_str(&"\n".repeat(tag.matches('\n').count()));
        rest = after.split_once(end).map_or("", |(_, rest)| rest);
    }
    shown.push_str(rest);
    shown
}

fn seen(blocks: Vec<Block>) -> Vec<(usize, String)> {
    let blocks = blocks.into_iter();
    blocks.map(|block| (block.line, block.text)).collect()
}

fn markdown(text: &str) -> Vec<(usize, String)> {
    seen(of_markdown("a.md", text))
}

fn pair(line: usize, text: &str) -> (usize, String) {
    (line, text.to_owned())
}

#[test]
fn headings_paragraphs_and_items_are_blocks() {
    let text = "# A title\n\nOne line.\nThe next.\n\n- an item\n  goes on\n- another\n  1. inner\n\n\
                > A quote.\n\n---\n\nThe end.\n";
    let wanted = [
        pair(1, "A title"),
        pair(3, "One line.\nThe next."),
        pair(6, "an item\ngoes on"),
        pair(8, "another"),
        pair(9, "inner"),
        pair(11, "A quote."),
        pair(15, "The end."),
    ];
    assert_eq!(markdown(text), wanted);
}

#[test]
fn each_cell_of_a_table_is_a_block() {
    let text = "| A | B |\n|---|---|\n| one `a\\|b` | |\n| two | [three](x.md) four |\n";
    let wanted = [
        pair(1, "A"),
        pair(1, "B"),
        pair(3, "one `a|b`"),
        pair(4, "two"),
        pair(4, "three four"),
    ];
    assert_eq!(markdown(text), wanted);
}

#[test]
fn code_blocks_and_comments_are_skipped() {
    let text = "Run:\n\n```sh\nls -l # Not prose.\n```\n\n1. Then\n\n   ```text\n   out\n   ```\n\n\
                <!-- A comment\nof two lines -->\nA line.\n\n    indented\n";
    let found: Vec<String> = markdown(text).into_iter().map(|(_, text)| text).collect();
    let found: Vec<&str> = found.iter().map(|text| text.trim()).collect();
    assert_eq!(found, ["Run:", "Then", "A line."]);
}

#[test]
fn marks_inside_a_line_are_taken_off() {
    let text = "A **bold *word*** and [a `code` link](to.md#x), <https://example.com>.\n";
    assert_eq!(
        markdown(text),
        [pair(
            1,
            "A bold word and a `code` link, https://example.com."
        )]
    );
    assert_eq!(
        markdown("Say ``a`b`` twice.\n"),
        [pair(1, "Say `a'b` twice.")]
    );
    assert_eq!(
        markdown("Snake_case and 2 * 3.\n"),
        [pair(1, "Snake_case and 2 * 3.")]
    );
}

#[test]
fn images_and_footnotes_are_blocks_of_their_own() {
    let text = "![What it shows](a.png)\nA line.[^1]\n\n[^1]: The note.\n";
    let found: Vec<String> = markdown(text)
        .into_iter()
        .map(|(_, text)| text.trim().to_owned())
        .collect();
    assert_eq!(found, ["What it shows", "A line.", "The note."]);
}

#[test]
fn a_plain_text_is_split_at_blank_lines_and_dashes() {
    let text = "One line\ngoes on.\n\n  Next # is\n- an item\n  of two lines\n- another\n";
    let wanted = [
        pair(9, "One line\ngoes on."),
        pair(12, "Next # is"),
        pair(13, "an item\nof two lines"),
        pair(15, "another"),
    ];
    assert_eq!(seen(of_plain("a", 9, text)), wanted);
}

#[test]
fn tags_and_comments_are_not_shown() {
    let html = "<p class=\"a\">One<br>two<!-- a > b --></p>\n<b\nid=x>three</b>";
    let shown = without_tags(html);
    let words: Vec<&str> = shown.split_whitespace().collect();
    assert_eq!(words, ["One", "two", "three"]);
    assert_eq!(shown.matches('\n').count(), 2);
}
