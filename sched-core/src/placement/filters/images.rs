//! Isolated images: those of an aggregate with `images` run on its members alone, and nothing else runs there unless it
//! says `images_only: false`.
//!
//! ```text
//!                     node of the aggregate    other node
//!  isolated image     yes                      ELSEWHERE
//!  any other image    RESERVED (images_only)   yes
//! ```
//!
//! Which images and nodes these are is kept as labels (`node.image`, `node.images_only`) that the scheduler itself
//! gives, so that both directions are masks.

use std::sync::Arc;

use sched_model::ReasonKind;

use super::{Filter, Miss, Narrowing};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::facts::{IMAGE, IMAGES_ONLY};
use crate::cluster::labels::Mask;
use crate::cluster::view::Asked;

/// Keeps isolated images and all other workloads apart. Concerns every START while any aggregate isolates an image.
#[derive(Debug)]
pub(super) struct IsolatedImages;

/// The node is reserved for images of its aggregate, and the START's is none of them.
const RESERVED: Miss = Miss(0);
/// The START's image is isolated, and the node is not one of its aggregate.
const ELSEWHERE: Miss = Miss(1);

impl Filter for IsolatedImages {
    fn name(&self) -> &'static str {
        "images"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.view.isolation.has_images()
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        match isolated(asked) {
            Some(image) if node.label(IMAGE).any(|it| it == image) => Ok(()),
            Some(_) => Err(ELSEWHERE),
            None if node.label(IMAGES_ONLY).next().is_some() => Err(RESERVED),
            None => Ok(()),
        }
    }

    fn narrow(&self, asked: &Asked<'_>, to: &mut Narrowing<'_>) {
        to.masks.push(match isolated(asked) {
            Some(image) => {
                let members = to.labels.with_values(IMAGE, std::iter::once(image));
                Mask::inside(Arc::new(members))
            }
            None => Mask::outside(Arc::new(to.labels.with_key(IMAGES_ONLY))),
        });
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::Images
    }

    fn lack(&self, miss: Miss, _asked: &Asked<'_>) -> Lack {
        match miss {
            ELSEWHERE => Lack::ForImage,
            _ => Lack::OtherImages,
        }
    }

    fn what(&self, miss: Miss, asked: &Asked<'_>) -> String {
        match (miss, isolated(asked)) {
            (ELSEWHERE, Some(image)) => image.to_owned(),
            _ => String::new(),
        }
    }

    fn is_lasting(&self, _miss: Miss, _asked: &Asked<'_>) -> bool {
        true
    }
}

/// The START's image, if some aggregate isolates it; `None` where it has no image or any other.
fn isolated<'a>(asked: &Asked<'a>) -> Option<&'a str> {
    let image = asked.query.request().image.as_deref();
    image.filter(|image| asked.view.isolation.is_isolated(image))
}
