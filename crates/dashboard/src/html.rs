//! HTML as values. A text from outside may be markup: a workflow's input may be `<script>`. So every
//! text is escaped when it is added to a page, and there is no other way to add a text. Names of elements
//! and attributes are constants of the program, and a link is a [`Link`], so no text becomes markup
//! or a `javascript:` address.
//!
//! In texts that people read, characters that a page cannot show are replaced. Texts that a form sends back,
//! such as the value of a field, must not be changed: they are added by [`Tag::exact`] and [`Exact`].

mod link;

use std::fmt::{self, Write};

pub(crate) use link::{Encoded, Link};

/// A finished piece of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Html(String);

/// An element that is being built.
#[derive(Debug, Clone)]
pub(crate) struct Tag {
    name: &'static str,
    attributes: String,
    content: String,
}

/// A value that can be added to an element.
pub(crate) trait Content {
    fn write(&self, out: &mut String);
}

/// A text that a form sends back: the content of a text area. A browser reads exactly this text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact<'a>(pub(crate) &'a str);

/// Begins an element.
pub(crate) fn tag(name: &'static str) -> Tag {
    Tag { name, attributes: String::new(), content: String::new() }
}

/// Several pieces, one after the other.
pub(crate) fn list<C: Content>(pieces: impl IntoIterator<Item = C>) -> Html {
    let mut out = String::new();
    for piece in pieces {
        piece.write(&mut out);
    }
    Html(out)
}

impl Html {
    /// The beginning of a document.
    pub(crate) fn doctype() -> Html {
        Html("<!doctype html>".to_owned())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn add(mut self, content: impl Content) -> Html {
        content.write(&mut self.0);
        self
    }

    /// The piece, with each occurrence of `old` replaced by `new`.
    pub(crate) fn with_replaced(self, old: &Html, new: &Html) -> Html {
        Html(self.0.replace(&old.0, &new.0))
    }
}

impl Tag {
    /// An attribute. `href` has a method of its own, which takes a [`Link`], because a text could
    /// be a `javascript:` address.
    pub(crate) fn attr(mut self, name: &'static str, value: impl fmt::Display) -> Tag {
        assert_ne!(name, "href", "a link is added by `href`");
        self.put(name, &value.to_string(), is_not_shown);
        self
    }

    /// An attribute whose value must not be changed: the value of a field, which a form sends back, or
    /// a `data-key`, by which the script finds the same element in a newer page. A browser reads exactly
    /// this value; only U+0000 cannot be written in HTML.
    pub(crate) fn exact(mut self, name: &'static str, value: &str) -> Tag {
        self.put(name, value, |_| false);
        self
    }

    /// An attribute without a value, if it is wanted.
    pub(crate) fn flag(mut self, name: &'static str, is_wanted: bool) -> Tag {
        if is_wanted {
            self.attributes.push(' ');
            self.attributes.push_str(name);
        }
        self
    }

    pub(crate) fn class(self, names: &str) -> Tag {
        self.attr("class", names)
    }

    pub(crate) fn id(self, id: impl fmt::Display) -> Tag {
        self.attr("id", id)
    }

    pub(crate) fn href(mut self, link: &Link) -> Tag {
        self.put("href", &link.to_string(), is_not_shown);
        self
    }

    pub(crate) fn add(mut self, content: impl Content) -> Tag {
        content.write(&mut self.content);
        self
    }

    fn put(&mut self, name: &'static str, value: &str, is_replaced: fn(char) -> bool) {
        // Writing to a string does not fail.
        let _ = write!(self.attributes, " {name}=\"");
        escape(&mut self.attributes, value, is_replaced);
        self.attributes.push('"');
    }

    pub(crate) fn done(self) -> Html {
        list([self])
    }
}

/// Elements without an end tag.
const VOID: [&str; 6] = ["input", "meta", "link", "br", "hr", "img"];

impl Content for Tag {
    fn write(&self, out: &mut String) {
        let Tag { name, attributes, content } = self;
        let _ = write!(out, "<{name}{attributes}>{content}");
        if !VOID.contains(name) {
            let _ = write!(out, "</{name}>");
        }
    }
}

impl Content for Html {
    fn write(&self, out: &mut String) {
        out.push_str(&self.0);
    }
}

impl Content for &str {
    fn write(&self, out: &mut String) {
        escape(out, self, is_not_shown);
    }
}

impl Content for String {
    fn write(&self, out: &mut String) {
        escape(out, self, is_not_shown);
    }
}

impl Content for Exact<'_> {
    fn write(&self, out: &mut String) {
        escape(out, self.0, |_| false);
    }
}

impl<C: Content> Content for Option<C> {
    fn write(&self, out: &mut String) {
        if let Some(content) = self {
            content.write(out);
        }
    }
}

impl<C: Content> Content for Vec<C> {
    fn write(&self, out: &mut String) {
        self.iter().for_each(|content| content.write(out));
    }
}

impl<C: Content + ?Sized> Content for &C {
    fn write(&self, out: &mut String) {
        (**self).write(out);
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Content for $number {
            fn write(&self, out: &mut String) {
                let _ = write!(out, "{self}");
            }
        })*
    };
}
numbers!(u32, u64, usize);

/// Whether a character must not be in a text that people read: HTML cannot contain the character,
/// or the character changes the direction of the text after it.
pub(crate) fn is_not_shown(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => false,
    }
}

/// Appends a text, escaped for the content of an element and for a quoted attribute. Characters that
/// are replaced become U+FFFD.
fn escape(out: &mut String, text: &str, is_replaced: fn(char) -> bool) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ if is_replaced(character) => out.push('\u{fffd}'),
            // HTML reads the references &#128; to &#159; as other characters. The characters themselves
            // are not changed, so they are written without a reference.
            '\u{80}'..='\u{9f}' => out.push(character),
            _ if is_not_shown(character) => {
                let _ = write!(out, "&#{};", u32::from(character));
            }
            _ => out.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_never_becomes_markup() {
        let hostile = "<script>alert('1')</script>\"&\u{0}\u{202e}";
        let html = tag("p").attr("title", hostile).add(hostile).done();
        let escaped = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;\u{fffd}\u{fffd}";
        assert_eq!(html.as_str(), format!("<p title=\"{escaped}\">{escaped}</p>"));
    }

    #[test]
    fn a_value_that_a_form_sends_back_is_not_changed() {
        let value = "<a>\u{202e}\u{7f}\u{80}\u{9f}é\n";
        let html = tag("textarea").exact("value", value).add(Exact(value)).done();
        let exact = "&lt;a&gt;&#8238;&#127;\u{80}\u{9f}é\n";
        assert_eq!(html.as_str(), format!("<textarea value=\"{exact}\">{exact}</textarea>"));
    }

    #[test]
    fn elements_nest_and_void_elements_have_no_end() {
        let html = tag("p").add(tag("input").flag("required", true)).add(7u64).add(None::<Html>).done();
        assert_eq!(html.as_str(), "<p><input required>7</p>");
    }
}
