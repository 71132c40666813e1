//! Values by small numbers. A number stays the same as long as its value is there, and is used again afterwards. So
//! other structures may refer to a value by its number; they have to drop it together with the value.

/// Values in numbered places.
#[derive(Debug, Clone)]
pub(crate) struct Slots<T> {
    slots: Vec<Option<T>>,
    /// Numbers that are free, to be used before the list grows.
    vacant: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// The number that the next value put in will have.
    pub(crate) fn next(&self) -> u32 {
        let behind = || {
            u32::try_from(self.slots.len()).expect("what has a number is bounded far below 2^32")
        };
        self.vacant.last().copied().unwrap_or_else(behind)
    }

    /// Puts a value into a free place, and returns its number.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let at = self.next();
        if self.vacant.pop().is_some() {
            self.slots[at as usize] = Some(value);
        } else {
            self.slots.push(Some(value));
        }
        at
    }

    /// Takes a value out. With the last one the memory is given back.
    pub(crate) fn remove(&mut self, at: u32) -> Option<T> {
        let value = self.slots.get_mut(at as usize)?.take()?;
        self.vacant.push(at);
        if self.len() == 0 {
            *self = Self::default();
        }
        Some(value)
    }

    /// The value with a number.
    pub(crate) fn at(&self, at: u32) -> Option<&T> {
        self.slots.get(at as usize)?.as_ref()
    }

    /// The value with a number, to be changed.
    pub(crate) fn at_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// Values there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Numbers in use are below this.
    pub(crate) fn end(&self) -> usize {
        self.slots.len()
    }

    /// All values with their numbers, from a number on.
    pub(crate) fn iter_from(&self, start: usize) -> impl Iterator<Item = (u32, &T)> {
        let numbered = (0..).zip(&self.slots).skip(start);
        numbered.filter_map(|(at, slot)| Some((at, slot.as_ref()?)))
    }
}
