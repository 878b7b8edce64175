//! `Rows`: prints outcomes on standard output, each as soon as it is known, in all forms of a
//! result. The ids are known before the first outcome, so the first column of the table gets the
//! width of the widest id.

use duroxide_cdb::ListedInstance;
use unicode_width::UnicodeWidthStr;

use super::Outcome;
use crate::exit::Failure;
use crate::output::table::cell;
use crate::output::{self, Form, JsonList};
use crate::process::print;

/// The heading of the first column.
const HEAD: &str = "INSTANCE";

pub(super) struct Rows {
    form: Form,
    /// The width of the first column.
    width: usize,
    list: JsonList,
}

impl Rows {
    /// Prints the head of the table, if the form is a table.
    pub(super) fn begin(form: Form, instances: &[ListedInstance]) -> Result<Rows, Failure> {
        let widths = instances.iter().map(|row| cell(&row.instance_id).width());
        let rows = Rows { form, width: widths.max().unwrap_or(0).max(HEAD.len()), list: JsonList::default() };
        if form == Form::Table {
            print(&rows.line(HEAD, "RESULT"))?;
        }
        Ok(rows)
    }

    pub(super) fn print(&mut self, outcome: &Outcome) -> Result<(), Failure> {
        let text = match self.form {
            Form::Table => self.line(&cell(&outcome.instance_id), &cell(&outcome.text())),
            Form::Jsonl => output::line(outcome)?,
            Form::Json => self.list.next(outcome)?,
        };
        print(&text)
    }

    /// Closes the list of a JSON document.
    pub(super) fn end(self) -> Result<(), Failure> {
        match self.form {
            Form::Json => print(self.list.end()),
            Form::Table | Form::Jsonl => Ok(()),
        }
    }

    fn line(&self, id: &str, result: &str) -> String {
        let gap = " ".repeat(self.width.saturating_sub(id.width()));
        format!("{id}{gap}  {result}\n")
    }
}
