//! `image` of a START: only nodes that have that image, or whose launchers fetch images.
//!
//! Others would take the START and fail it: the original's launchers do not know the key, and one that speaks another
//! encoding than native cannot ask for an image. What a node has it says by its labels.

use super::{Filter, Miss};
use crate::api::input::Capabilities;
use crate::api::no_fit::Lack;
use crate::cluster::view::{Asked, Candidate};

/// Rejects nodes that lack the image of a START that names one by its digest, and whose launcher has not announced on
/// this connection that it fetches images. Lasting: the launcher would have to be replaced.
#[derive(Debug)]
pub(super) struct FetchesImage;

impl Filter for FetchesImage {
    fn name(&self) -> &'static str {
        "image-fetch"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.query().request().fetches_image
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        let image = asked.query().request().image.as_deref();
        if node.can(Capabilities::IMAGES) || image.is_some_and(|image| node.has_image(image)) {
            Ok(())
        } else {
            Err(Miss(0))
        }
    }

    fn lack(&self, _miss: Miss, _asked: &Asked<'_>) -> Lack {
        Lack::ImageFetch
    }

    fn is_lasting(&self, _miss: Miss, _asked: &Asked<'_>) -> bool {
        true
    }
}
