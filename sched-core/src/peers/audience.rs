//! Who is told of something: one after the other, so that each can be sent to in between.

use std::ops::Range;

use sched_model::Topic;

use crate::api::ids::SessionId;
use crate::peers::Peers;
use crate::peers::session::Session;

/// Those who are to be told of something and were not yet. No peer may come or go before all of them were.
#[derive(Debug)]
pub(crate) struct Audience<'t> {
    /// Their places among controllers and then subscribers.
    places: Range<usize>,
    /// What operators must have subscribed to; `None` where there are only controllers.
    topic: Option<&'t Topic>,
    except: Option<SessionId>,
}

impl<'t> Audience<'t> {
    pub(super) fn new(
        places: Range<usize>,
        topic: Option<&'t Topic>,
        except: Option<SessionId>,
    ) -> Self {
        Self {
            places,
            topic,
            except,
        }
    }

    /// Who is to be told next.
    pub(crate) fn next<'p>(&mut self, peers: &'p Peers) -> Option<(SessionId, &'p Session)> {
        let controllers = peers.controllers.len();
        for place in self.places.by_ref() {
            let (id, topic) = match peers.controllers.get(place) {
                Some(&id) => (id, None),
                None => (*peers.subscribers.get(place - controllers)?, self.topic),
            };
            let session = peers.session(id);
            let is_told = topic.is_none_or(|topic| session.topics.contains(topic));
            if is_told && self.except != Some(id) {
                return Some((id, session));
            }
        }
        None
    }
}
