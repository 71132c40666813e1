//! Those who are sent an event, one after the other, so that the caller can send to each in between: the iterator
//! borrows no peers between two steps.

use std::ops::Range;

use sched_model::Topic;

use crate::api::ids::SessionId;
use crate::peers::Peers;
use crate::peers::session::Session;

/// Those who are to be sent something and were not yet. No peer may come or go before the end.
#[derive(Debug)]
pub(crate) struct Audience<'t> {
    /// Positions in the list of controllers followed by that of subscribers.
    places: Range<usize>,
    /// What operators must have subscribed to; `None` where there are only controllers. Controllers get every topic.
    topic: Option<&'t Topic>,
    /// One session that is left out, such as the sender.
    except: Option<SessionId>,
}

impl Peers {
    /// Those who are sent an event of a topic, except for one of them: controllers in order, then subscribers.
    pub(crate) fn audience<'t>(&self, topic: &'t Topic, except: Option<SessionId>) -> Audience<'t> {
        let count = self.controllers.len() + self.subscribers.len();
        Audience {
            places: 0..count,
            topic: Some(topic),
            except,
        }
    }

    /// The controllers among them.
    pub(crate) fn controllers_to_notify(&self, except: Option<SessionId>) -> Audience<'static> {
        Audience {
            places: 0..self.controllers.len(),
            topic: None,
            except,
        }
    }

    /// The operators among them.
    pub(crate) fn subscribers_to_notify<'t>(
        &self,
        topic: &'t Topic,
        except: Option<SessionId>,
    ) -> Audience<'t> {
        let first = self.controllers.len();
        Audience {
            places: first..first + self.subscribers.len(),
            topic: Some(topic),
            except,
        }
    }
}

impl Audience<'_> {
    /// The next session to send to.
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
