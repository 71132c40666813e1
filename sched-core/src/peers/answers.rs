//! Commands of operators whose answer is still to come: launchers answer all controllers, and no one else could tell whose
//! command it was.

use crate::api::ids::{InstanceId, SessionId};
use crate::api::sent::CommandName;
use crate::maps::Map;

/// Commands of one operator whose answer may be still to come; further ones are refused meanwhile.
pub const MAX_AWAITED_BY_OPERATOR: usize = 4096;

/// The same of all operators together.
pub const MAX_AWAITED: usize = 16 * MAX_AWAITED_BY_OPERATOR;

/// Who waits for which answer.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    open: Map<(CommandName, InstanceId), SessionId>,
    by_operator: Map<SessionId, usize>,
}

impl Answers {
    /// Notes that an operator waits for an answer, in place of who did before.
    ///
    /// # Errors
    /// How many it waits for, or all together do, where that is as many as may.
    pub(crate) fn expect(
        &mut self,
        operator: SessionId,
        command: CommandName,
        instance: &InstanceId,
    ) -> Result<(), usize> {
        let key = (command, instance.clone());
        if self.open.get(&key) == Some(&operator) {
            return Ok(());
        }
        let own = self.by_operator.get(&operator).copied().unwrap_or_default();
        if own >= MAX_AWAITED_BY_OPERATOR {
            return Err(own);
        }
        if self.open.len() >= MAX_AWAITED {
            return Err(self.open.len());
        }
        self.take(command, instance);
        self.open.insert(key, operator);
        *self.by_operator.entry(operator).or_default() += 1;
        Ok(())
    }

    /// The operator that waits for an answer; no longer, then.
    pub(crate) fn take(
        &mut self,
        command: CommandName,
        instance: &InstanceId,
    ) -> Option<SessionId> {
        if self.open.is_empty() {
            return None;
        }
        let operator = self.open.swap_remove(&(command, instance.clone()))?;
        if let Some(own) = self.by_operator.get_mut(&operator) {
            *own -= 1;
            if *own == 0 {
                self.by_operator.swap_remove(&operator);
            }
        }
        if self.open.is_empty() {
            // Many at once are not paid for for ever.
            *self = Self::default();
        }
        Some(operator)
    }

    /// An operator has left.
    pub(crate) fn forget(&mut self, operator: SessionId) {
        if self.by_operator.swap_remove(&operator).is_some() {
            self.open.retain(|_, asker| *asker != operator);
        }
        if self.open.is_empty() {
            *self = Self::default();
        }
    }

    /// Operators that wait for one.
    pub(crate) fn operators(&self) -> impl Iterator<Item = SessionId> {
        self.open.values().copied()
    }

    /// Answers waited for.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Answers, CommandName, InstanceId, MAX_AWAITED_BY_OPERATOR, SessionId};

    #[test]
    fn one_operator_cannot_take_the_answers_of_another() {
        let mut answers = Answers::default();
        let (greedy, modest) = (SessionId(1), SessionId(2));
        let id = |number: usize| InstanceId::new(&number.to_string());
        for number in 0..MAX_AWAITED_BY_OPERATOR {
            assert_eq!(
                answers.expect(greedy, CommandName::Delete, &id(number)),
                Ok(())
            );
        }
        let most = MAX_AWAITED_BY_OPERATOR;
        assert_eq!(
            answers.expect(greedy, CommandName::Delete, &id(most)),
            Err(most)
        );
        assert_eq!(
            answers.expect(modest, CommandName::Delete, &id(most)),
            Ok(())
        );
        assert_eq!(
            answers.expect(greedy, CommandName::Delete, &id(7)),
            Ok(()),
            "asked again"
        );
        assert_eq!(answers.take(CommandName::Delete, &id(most)), Some(modest));
        assert_eq!(answers.take(CommandName::Delete, &id(0)), Some(greedy));
        assert_eq!(
            answers.expect(greedy, CommandName::Delete, &id(most)),
            Ok(())
        );
        answers.forget(greedy);
        assert_eq!((answers.len(), answers.open.capacity()), (0, 0));
    }
}
