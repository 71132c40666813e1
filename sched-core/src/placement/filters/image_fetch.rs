//! `image` and `more_images` of a START: only nodes that have that image, or whose launchers fetch images; and where there
//! are further ones, launchers that know of those.
//!
//! Others would take the START and fail it: the original's launchers do not know the key, and one that speaks another
//! encoding than native cannot ask for an image. What a node has it says by its labels.

use super::{Filter, Miss};
use crate::api::input::Capabilities;
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::view::Asked;

/// Rejects nodes that lack the image of a START that names one by its digest, and whose launcher has not announced on
/// this connection that it fetches images; and of a START with further images, all whose launcher has not announced
/// that it fetches such. Lasting: the launcher would have to be replaced.
#[derive(Debug)]
pub(super) struct FetchesImage;

/// The node does not have the image, and cannot fetch it.
const IMAGE: Miss = Miss(0);
/// Its launcher would run the program without the further images.
const MORE_IMAGES: Miss = Miss(1);

impl Filter for FetchesImage {
    fn name(&self) -> &'static str {
        "image-fetch"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.query.request().fetches_image
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        let request = asked.query.request();
        let has_image = || {
            let image = request.image.as_deref();
            image.is_some_and(|image| node.has_image(image))
        };
        if !node.can(Capabilities::IMAGES) && !has_image() {
            Err(IMAGE)
        } else if !request.more_images.is_empty() && !node.can(Capabilities::MORE_IMAGES) {
            Err(MORE_IMAGES)
        } else {
            Ok(())
        }
    }

    fn lack(&self, miss: Miss, _asked: &Asked<'_>) -> Lack {
        match miss {
            MORE_IMAGES => Lack::MoreImages,
            _ => Lack::ImageFetch,
        }
    }

    fn what(&self, miss: Miss, _asked: &Asked<'_>) -> String {
        match miss {
            MORE_IMAGES => "more_images".to_owned(),
            _ => String::new(),
        }
    }

    fn is_lasting(&self, _miss: Miss, _asked: &Asked<'_>) -> bool {
        true
    }
}
