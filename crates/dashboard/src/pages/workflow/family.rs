//! The family of a workflow: its parent and its sub-orchestrations as a tree.

use duroxide_cdb::TreeInstance;

use super::Shown;
use crate::html::{Html, list, tag};
use crate::pages::parts::{self, ago, status, workflow_link};

/// The most descendants that are shown.
const SHOWN_MAX: usize = 200;

/// The deepest indentation. Deeper workflows get this indentation.
const DEPTH_MAX: usize = 12;

pub(super) fn section(shown: &Shown<'_>) -> Option<Html> {
    let tree = match &shown.detail.tree {
        Ok(tree) => tree,
        Err(failure) => return Some(parts::section("family", "Family", parts::unread(failure)).done()),
    };
    let has_family = tree.instances.len() > 1 || shown.row.parent_instance_id.is_some();
    if !has_family {
        return None;
    }
    let parent = shown.row.parent_instance_id.as_deref().map(|parent| {
        tag("li").class("depth-0").add(workflow_link(parent)).add(tag("span").class("faint").add("parent"))
    });
    let offset = usize::from(parent.is_some());
    let rows = tree.instances.iter().take(SHOWN_MAX).map(|member| member_row(member, offset, shown));
    let is_cut = tree.instances.len() > SHOWN_MAX || !tree.is_complete;
    let cut = is_cut.then(|| parts::note("There are more descendants than are shown."));
    let members = tag("ul").class("tree").add(parent).add(list(rows));
    Some(parts::section("family", "Family", Html::default().add(members).add(cut)).done())
}

fn member_row(member: &TreeInstance, offset: usize, shown: &Shown<'_>) -> Html {
    let row = &member.instance;
    let is_self = row.instance_id == shown.row.instance_id;
    let id = match is_self {
        true => tag("strong").class("id").attr("aria-current", "page").add(row.instance_id.as_str()).done(),
        false => workflow_link(&row.instance_id),
    };
    tag("li")
        .class(&format!("depth-{}", (member.depth + offset).min(DEPTH_MAX)))
        .add(id)
        .add(parts::name_and_version(row))
        .add(status(&row.status))
        .add(ago(row.updated_at, shown.now_ms))
        .done()
}
