//! Commands of operators whose answer is still to come. A launcher's answer goes to all controllers, and names only the
//! instance; this table says which operator has to get it as well. Bounded for each operator and for all of them.

use crate::api::ids::{InstanceId, SessionId};
use crate::api::sent::CommandName;
use crate::maps::{Map, change_or_drop};

/// Commands of one operator that may wait for answers; further ones are refused meanwhile. So one operator cannot use
/// up the table.
pub const MAX_AWAITED_BY_OPERATOR: usize = 4096;

/// The same of all operators together.
pub const MAX_AWAITED: usize = 16 * MAX_AWAITED_BY_OPERATOR;

/// Which operator waits for which answer: one for each command and instance, the latest that asked.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    open: Map<(CommandName, InstanceId), SessionId>,
    /// How many of `open` each operator has; those with none are not listed.
    by_operator: Map<SessionId, usize>,
}

impl Answers {
    /// Notes that an operator waits for an answer, in place of the operator that waited for the same answer before.
    ///
    /// # Errors
    /// The number of commands that wait, of this operator or of all together, if that is the most allowed. The command
    /// is to be refused then.
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

    /// The operator that waits for an answer; it does not wait any longer.
    pub(crate) fn take(
        &mut self,
        command: CommandName,
        instance: &InstanceId,
    ) -> Option<SessionId> {
        if self.open.is_empty() {
            return None;
        }
        let operator = self.open.swap_remove(&(command, instance.clone()))?;
        change_or_drop(&mut self.by_operator, &operator, |own| {
            *own -= 1;
            *own > 0
        });
        if self.open.is_empty() {
            // Many at once are not paid for for ever.
            *self = Self::default();
        }
        Some(operator)
    }

    /// An operator's session has ended: its answers go to controllers alone.
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
