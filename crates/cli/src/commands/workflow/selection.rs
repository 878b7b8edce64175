//! `SelectionArgs`: which instances a verb works on, by their ids or by a filter, and the
//! questions before something is changed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, IsTerminal, Write};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use duroxide_cdb::{CosmosDBProvider, ListOptions, ListPage, ListedInstance};

use super::instance;
use crate::context::{Context, now_ms};
use crate::exit::Failure;
use crate::output::text::{counted, escaped};
use crate::process::tell;

/// The most instances that one command changes.
const LIMIT_MAX: u32 = 100_000;

/// The most pages that one selection reads. To read them all takes minutes. [`LIMIT_MAX`] instances
/// are on some hundred pages. More pages are read because a verb may leave out many of the instances
/// on them.
const PAGES_MAX: usize = 10_000;

/// What a command says after [`PAGES_MAX`] pages.
pub(super) const MAY_BE_MORE: &str = "there may be more: at most 10,000 pages are read";

// Which instances a verb works on. Not a documentation comment: clap would show it as the help.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct SelectionArgs {
    /// The instances
    #[arg(value_name = "INSTANCE", required_unless_present = "filter", conflicts_with = "filter")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    instances: Vec<String>,

    /// All instances that match a filter, such as 'status=failed created>7d'; see
    /// `perihelion workflow list --help`
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,

    /// The most instances that a filter selects
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIMIT_MAX)))]
    limit: u32,

    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Why a selection may lack instances that the filter selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// There are more than the limit.
    Limit,
    /// The last of [`PAGES_MAX`] pages was not the end. There may be more.
    Pages,
}

/// The instances that were selected.
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) instances: Vec<ListedInstance>,
    /// The filter in words; `None` if the instances were named.
    meaning: Option<String>,
    /// `None` if these are all instances that the filter selects.
    pub(super) cut: Option<Cut>,
    /// How many instances match the filter and are left out, because the verb is not for them. The
    /// keys are their [kinds](kind).
    left_out: BTreeMap<String, usize>,
}

/// Parses a filter. The failure shows where it is wrong.
pub(super) fn parse_filter(text: &str) -> Result<ListOptions, Failure> {
    ListOptions::from_filter(text, now_ms()).map_err(|error| {
        let pointer = format!("{}^", " ".repeat(error.position));
        let advice = match text.contains("!=") {
            true => "there is no !=: a filter says what a workflow has, not what it lacks",
            false => "`perihelion workflow list --help` shows the filters",
        };
        Failure::usage(format!("{error}\n  {text}\n  {pointer}"), advice)
    })
}

impl SelectionArgs {
    /// Finds the instances. A name that does not exist is a failure. With a filter, instances for
    /// which `is_wanted` is false are left out.
    pub(super) async fn select(
        &self,
        provider: &CosmosDBProvider,
        is_wanted: impl Fn(&ListedInstance) -> bool,
    ) -> Result<Selection, Failure> {
        let Some(filter) = &self.filter else {
            let mut instances = Vec::new();
            let mut known = BTreeSet::new();
            // An instance that is named twice is taken once.
            for name in self.instances.iter().filter(|name| known.insert(name.as_str())) {
                instances.push(instance::get(provider, name).await?);
            }
            return Ok(Selection { instances, meaning: None, cut: None, left_out: BTreeMap::new() });
        };
        let options = parse_filter(filter)?;
        if options == ListOptions::new() {
            return Err(Failure::usage(
                "an empty filter would select every workflow",
                "say which ones; created>=0s means all of them",
            ));
        }
        let left_out = RefCell::new(BTreeMap::new());
        let is_wanted = |row: &ListedInstance| {
            let is_wanted = is_wanted(row);
            if !is_wanted {
                *left_out.borrow_mut().entry(kind(row)).or_default() += 1;
            }
            is_wanted
        };
        let (instances, cut) = read(provider, &options, self.limit as usize, is_wanted).await?;
        let meaning = Some(options.meaning());
        Ok(Selection { instances, meaning, cut, left_out: left_out.into_inner() })
    }

    /// Prints which instances are selected and where. Then asks the person at the terminal to
    /// confirm the action, unless --yes is given. Without a terminal --yes is required. `action` is
    /// the action in words, such as "delete 2 workflows".
    pub(super) fn confirm(
        &self,
        action: &str,
        context: &Context,
        selection: &Selection,
    ) -> Result<(), Failure> {
        let Selection { instances, meaning, cut, left_out } = selection;
        let mut line = format!("{} selected in {}", workflows(instances.len()), escaped(&context.target()));
        if let Some(meaning) = meaning {
            line.push_str(&format!(": {}", escaped(meaning)));
        }
        match cut {
            Some(Cut::Limit) => line.push_str(", and there are more (--limit)"),
            Some(Cut::Pages) => line.push_str(&format!(", and {MAY_BE_MORE}")),
            None => {}
        }
        let kinds: Vec<String> = left_out.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        if !kinds.is_empty() {
            line.push_str(&format!("; left out, see --help: {}", kinds.join(", ")));
        }
        tell(format_args!("{line}"));
        if self.yes || self.dry_run || instances.is_empty() {
            return Ok(());
        }
        confirm(&format!("{action} in {}", context.target()), YES_OR_DRY_RUN)
    }

    /// Whether the instances were named, and not found by a filter.
    pub(super) fn is_by_name(&self) -> bool {
        self.filter.is_none()
    }
}

/// The kind of a workflow: its status and whether it has a parent, such as `running` or `completed
/// with a parent`.
fn kind(row: &ListedInstance) -> String {
    let parent = if row.parent_instance_id.is_some() { " with a parent" } else { "" };
    format!("{}{parent}", row.status.to_lowercase())
}

/// `1 workflow`, `2 workflows`.
pub(super) fn workflows(count: usize) -> String {
    counted(count as u64, "workflow")
}

/// The advice of [`confirm`] for a verb that has --yes and --dry-run.
pub(crate) const YES_OR_DRY_RUN: &str = "add --yes to do it, or --dry-run to see what it would do";

/// Asks a person whether to do something. `advice` is for a command that cannot ask.
pub(crate) fn confirm(action: &str, advice: &str) -> Result<(), Failure> {
    let unanswered = || Failure::usage(format!("this would {action}, and nobody can be asked"), advice);
    if !std::io::stdin().is_terminal() {
        return Err(unanswered());
    }
    let mut errors = std::io::stderr().lock();
    let _ =
        write!(errors, "This will {}. Type yes to go on: ", escaped(action)).and_then(|()| errors.flush());
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|_| unanswered())?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => Err(Failure::runtime("nothing was done")),
    }
}

/// The instances that the options select, page by page, up to a limit; and why there may be more.
pub(super) async fn read(
    provider: &CosmosDBProvider,
    options: &ListOptions,
    limit: usize,
    is_wanted: impl Fn(&ListedInstance) -> bool,
) -> Result<(Vec<ListedInstance>, Option<Cut>), Failure> {
    let list = async |options: &ListOptions| provider.list(options).await.map_err(Failure::provider);
    read_pages(list, options, limit, is_wanted).await
}

async fn read_pages(
    list: impl AsyncFn(&ListOptions) -> Result<ListPage, Failure>,
    options: &ListOptions,
    limit: usize,
    is_wanted: impl Fn(&ListedInstance) -> bool,
) -> Result<(Vec<ListedInstance>, Option<Cut>), Failure> {
    // One more than the limit tells whether there are more.
    let page_size = u32::try_from(limit + 1).unwrap_or(u32::MAX);
    let mut options = options.clone().with_page_size(page_size);
    let mut found = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = list(&options).await?;
        found.extend(page.instances.into_iter().filter(&is_wanted));
        if found.len() > limit {
            found.truncate(limit);
            return Ok((found, Some(Cut::Limit)));
        }
        match page.continuation {
            Some(next) => options = options.with_continuation(next),
            None => return Ok((found, None)),
        }
    }
    Ok((found, Some(Cut::Pages)))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Story of a bug: the verb left out every instance that matched the filter, so the command read
    /// all pages of the container.
    #[tokio::test]
    async fn a_selection_without_a_wanted_instance_ends_at_the_limit_of_pages() {
        let mut endless = ListPage::default();
        endless.instances = vec![ListedInstance::default()];
        endless.continuation = Some("next".to_owned());
        let pages = Cell::new(0);
        let list = async |_: &ListOptions| {
            pages.set(pages.get() + 1);
            assert!(pages.get() <= PAGES_MAX, "too many pages");
            Ok(endless.clone())
        };
        let (found, cut) = read_pages(list, &ListOptions::new(), 7, |_| false).await.unwrap();
        assert_eq!((found.len(), cut, pages.get()), (0, Some(Cut::Pages), PAGES_MAX));
        let list = async |_: &ListOptions| Ok(endless.clone());
        let (found, cut) = read_pages(list, &ListOptions::new(), 7, |_| true).await.unwrap();
        assert_eq!((found.len(), cut), (7, Some(Cut::Limit)));
    }
}
