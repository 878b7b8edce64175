//! Pictures as SVG: the timeline of an execution, and small charts. Everything is drawn by pure
//! functions. Colours and sizes of texts are in the style sheet, by class.

pub(crate) mod axis;
pub(crate) mod chart;
pub(crate) mod timeline;
