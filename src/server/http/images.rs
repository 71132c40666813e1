//! `/v1/images`: the programs that the scheduler keeps. They are listed, looked at, uploaded ([`upload`]) and deleted.
//!
//! Each request asks the store of images in a session of its own ([`Asking`]). So quotas, digests and what is in use are the store's matter alone, and what launchers fetch goes on between the
//! chunks of an upload at the rate that it has.

mod upload;

use axum::body::Bytes;
use axum::http::StatusCode;
use proto_frames::payload::{
    DeleteImage, Digest, ImageChunk, ImageFailure, ImageList, ImagePart, ImageRow, ListImages,
    Payload,
};
use proto_frames::{Frame, Kind, Role, Uuid};
use sched_model::query::DEFAULT_LIMIT;
use sched_model::value::Record as _;
use serde_json::{Map, Value};

use super::asking::{Asking, unreadable};
use super::call::{Answer, Call, answer, answer_with, meets};
use super::json::to_json;
use super::limits::MAX_STEPS;
use super::problem::Problem;
use sched_core::{Command, ImageCommand};

pub(super) use self::upload::put;

/// `GET /v1/images`: a page of them, in the order of their digests.
///
/// # Errors
/// 400 for a field that rows do not have or an `after` that is no digest; else those of [`Store::ask`].
pub(super) async fn list(call: Call) -> Answer {
    let fields = call.query.fields(ImageRow::FIELDS)?;
    let limit = call.query.number("limit").unwrap_or(DEFAULT_LIMIT) as usize;
    let selectors = call.query.selectors(ImageRow::FIELDS)?;
    let matching = call.query.text("match");
    let is_wanted = |row: &ImageRow| {
        let (whole, digits) = (&*row.digest, row.digest.rsplit(':').next());
        matching.is_none_or(|it| {
            whole.starts_with(it) || digits.is_some_and(|digits| digits.starts_with(it))
        })
    };
    let mut after = call.query.text("after").map(str::parse).transpose();
    let at = call.app.ring.end();
    let mut store = Store::open(&call, Role::VIEWER)?;
    let mut rows: Vec<Value> = Vec::new();
    let mut next = None;
    for _ in 0..MAX_STEPS {
        let from = after.map_err(|error| Problem::parameter("after", error))?;
        let page = store.list(from).await?;
        let count = page.images.len();
        for (number, row) in page.images.iter().enumerate() {
            let mut json = to_json(row);
            if is_wanted(row) && meets(&json, &selectors) {
                json.retain(|key, _| fields.as_ref().is_none_or(|it| it.contains(&&**key)));
                rows.push(json.into());
            }
            let is_last = number + 1 == count && page.next.is_empty();
            next = (!is_last).then(|| row.digest.clone());
            if rows.len() >= limit {
                break;
            }
        }
        if rows.len() >= limit || page.next.is_empty() {
            break;
        }
        after = Some(page.next.parse()).transpose();
    }
    let mut content = Map::new();
    content.insert("items".to_owned(), rows.into());
    content.insert("next".to_owned(), next.into());
    Ok(answer(StatusCode::OK, at, content))
}

/// `GET /v1/images/{id}`, by its whole digest.
///
/// # Errors
/// 404 `no_image`, 422 for what is no digest, 400 for a field that images do not have; else those of [`Store::ask`].
pub(super) async fn one(call: Call) -> Answer {
    let fields = call.query.fields(ImageRow::FIELDS)?;
    let digest = digest_of(&call)?;
    let at = call.app.ring.end();
    let mut store = Store::open(&call, Role::VIEWER)?;
    let Some(row) = store.row(&digest).await? else {
        let detail = format!("the scheduler has no image {digest}");
        return Err(Problem::not_found("no_image", detail)
            .with_help("GET /v1/images lists those that there are"));
    };
    let mut row = to_json(&row);
    if let Some(fields) = fields {
        row.retain(|key, _| fields.contains(&&**key));
    }
    Ok(answer_with(StatusCode::OK, at, "image", row.into()))
}

/// `DELETE /v1/images/{id}`: an image, or what there is of one whose upload has not ended. Answered with its row as it
/// was; of the latter with the digest alone.
///
/// # Errors
/// 404 `no_image`, 409 `in_use`, 422 for what is no digest; else those of [`Store::ask`].
pub(super) async fn delete(call: Call) -> Answer {
    let digest = digest_of(&call)?;
    let mut store = Store::open(&call, Role::OPERATOR)?;
    let row = store.row(&digest).await?.unwrap_or_else(|| ImageRow {
        digest: digest.to_string(),
        ..ImageRow::default()
    });
    let delete = DeleteImage {
        id: 0,
        digest: digest.to_string(),
    };
    let delete = (ImageCommand::Delete, Kind::DELETE_IMAGE, delete.encode());
    store.part(delete).await?;
    let at = call.app.ring.end();
    Ok(answer_with(
        StatusCode::OK,
        at,
        "image",
        to_json(&row).into(),
    ))
}

/// The digest that a path names.
///
/// # Errors
/// 422 `invalid_data`.
fn digest_of(call: &Call) -> Result<Digest, Problem> {
    let digest = call.id.parse::<Digest>();
    digest.map_err(|error| Problem::invalid_data("id", error))
}

/// A session that asks the store of images, one thing at a time.
struct Store(Asking);

impl Store {
    /// Opens a session in this role, which the route has checked.
    ///
    /// # Errors
    /// 503 `leaving`.
    fn open(call: &Call, role: Role) -> Result<Self, Problem> {
        Asking::open(call, role).map(Self)
    }

    /// The row of an image that is complete: the first one of a list that begins behind the digest before it.
    ///
    /// # Errors
    /// As [`Store::ask`].
    async fn row(&mut self, digest: &Digest) -> Result<Option<ImageRow>, Problem> {
        let list = self.list(digest.previous()).await?;
        let first = list.images.into_iter().next();
        Ok(first.filter(|row| row.digest == digest.to_string()))
    }

    /// A page of the store's list, behind a digest.
    ///
    /// # Errors
    /// As [`Store::ask`].
    async fn list(&mut self, after: Option<Digest>) -> Result<ImageList, Problem> {
        let list = ListImages {
            id: 0,
            after: after.as_ref().map(ToString::to_string).unwrap_or_default(),
        };
        let list = (ImageCommand::List, Kind::LIST_IMAGES, list.encode());
        let answer = self.ask(list).await?;
        let list = ImageList::decode(&answer.payload).map_err(unreadable)?;
        match list.failure.as_str() {
            "" => Ok(list),
            _ => Err(refused(&list.failure, &list.detail)),
        }
    }

    /// Asks for something that is answered with a part of an image.
    ///
    /// # Errors
    /// As [`Store::ask`].
    async fn part(&mut self, ask: (ImageCommand, Kind, Bytes)) -> Result<ImagePart, Problem> {
        let part = self.any_part(ask).await?;
        match part.is_failure() {
            true => Err(refused(&part.failure, &part.detail)),
            false => Ok(part),
        }
    }

    /// The same, where a failure is an answer too.
    ///
    /// # Errors
    /// As [`Store::ask`].
    async fn any_part(&mut self, ask: (ImageCommand, Kind, Bytes)) -> Result<ImagePart, Problem> {
        let answer = self.ask(ask).await?;
        let chunk = ImageChunk::decode(&answer.payload).map_err(unreadable)?;
        Ok(chunk.part)
    }

    /// Asks for something and waits for the answer.
    ///
    /// # Errors
    /// As [`Asking::ask`].
    async fn ask(
        &mut self,
        (command, kind, payload): (ImageCommand, Kind, Bytes),
    ) -> Result<Frame, Problem> {
        let command = Command::Image(command);
        self.0
            .ask(command, Frame::new(kind, Uuid::nil(), payload))
            .await
    }
}

/// What the store refuses.
fn refused(failure: &ImageFailure, detail: &str) -> Problem {
    let (status, help) = match failure {
        ImageFailure::NotOffered => (StatusCode::NOT_IMPLEMENTED, ""),
        ImageFailure::NoImage => (StatusCode::NOT_FOUND, ""),
        ImageFailure::InUse => (StatusCode::CONFLICT, ""),
        ImageFailure::Busy => (StatusCode::SERVICE_UNAVAILABLE, "send it again in a moment"),
        ImageFailure::Quota => (
            StatusCode::INSUFFICIENT_STORAGE,
            "delete what is not needed any more: DELETE /v1/images/{id}",
        ),
        ImageFailure::WrongDigest | ImageFailure::InvalidData => {
            (StatusCode::UNPROCESSABLE_ENTITY, "")
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, ""),
    };
    let problem = Problem::new(status, failure.as_str(), detail);
    match help {
        "" => problem,
        help => problem.with_help(help),
    }
}
