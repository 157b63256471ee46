//! What streams have yet to do: their queues, and the order in which they run.
//!
//! A stream does its work when it is enqueued, unless it has something pending: it is held, it waits for an event, or a
//! host function of it is being called. What is enqueued meanwhile stays in its queue.

use std::collections::VecDeque;
use std::ops::Range;

use super::abi::Token;
use super::host_function::HostFunction;
use super::work::Work;
use super::State;

/// A stream and its queue.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) device: usize,
    /// A context's own stream, which is never created or destroyed by a call.
    pub(super) is_default: bool,
    pub(super) held: bool,
    /// Destroyed by its owner. It goes when its queue is empty.
    pub(super) ending: bool,
    /// Whether a thread has taken over to call the host function at the front of the queue, or is in it.
    calling: bool,
    queue: VecDeque<Item>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Item {
    Work(Work),
    Record { event: Token, ticket: u64 },
    Wait { event: Token, ticket: u64 },
    Call(HostFunction),
}

impl Stream {
    pub(super) fn new(device: usize, is_default: bool) -> Self {
        Stream {
            device,
            is_default,
            held: false,
            ending: false,
            calling: false,
            queue: VecDeque::new(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.calling
    }

    /// Whether the item at the front can be done now.
    fn can_go_on(&self) -> bool {
        let blocked = self.held || self.calling;
        !blocked && !matches!(self.queue.front(), None | Some(Item::Wait { .. }))
    }
}

impl State {
    /// Whether what is enqueued now stays pending.
    pub(super) fn defers(&self, stream: Token) -> bool {
        let stream = self.streams.get(&stream);
        stream.is_some_and(|stream| stream.held || !stream.is_idle())
    }

    /// Adds to the end of a stream's queue.
    pub(super) fn enqueue(&mut self, stream: Token, item: Item) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.queue.push_back(item);
        }
    }

    /// Lets every stream go as far as it can. Host functions whose turn has come are noted as due.
    pub(super) fn run_streams(&mut self) {
        let next = |state: &State| {
            let mut streams = state.streams.iter();
            let found = streams.find(|(_, stream)| stream.can_go_on());
            found.map(|(&token, stream)| (token, stream.device))
        };
        while let Some((token, device)) = next(self) {
            self.step(token, device);
        }
        self.streams
            .retain(|_, stream| !(stream.ending && stream.is_idle()));
    }

    /// Does the item at the front of a queue.
    fn step(&mut self, token: Token, device: usize) {
        let Some(stream) = self.streams.get_mut(&token) else {
            return;
        };
        if let Some(Item::Call(_)) = stream.queue.front() {
            stream.calling = true;
            self.due.push_back(token);
            return;
        }
        match stream.queue.pop_front() {
            Some(Item::Record { event, ticket }) => self.reach(event, ticket),
            Some(Item::Work(work)) => {
                if self.execute(device, work).is_err() {
                    // What was right when it was enqueued is wrong now: a fault on the device.
                    self.lose_context(device);
                }
            }
            Some(Item::Wait { .. } | Item::Call(_)) | None => {}
        }
    }

    /// The host function that a stream is due to call; none if its context was lost since.
    pub(super) fn take_function(&mut self, stream: Token) -> Option<HostFunction> {
        let queue = &mut self.streams.get_mut(&stream)?.queue;
        match queue.front() {
            Some(&Item::Call(function)) => {
                queue.pop_front();
                Some(function)
            }
            _ => None,
        }
    }

    /// Lets a stream go on behind its host function.
    pub(super) fn function_returned(&mut self, stream: Token) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.calling = false;
        }
        self.run_streams();
    }

    /// Marks a record as reached, and ends the waits for it.
    fn reach(&mut self, event: Token, ticket: u64) {
        if let Some(event) = self.events.get_mut(&event) {
            if event.pending == Some(ticket) {
                event.pending = None;
            }
        }
        let waits = |item: &Item| match *item {
            Item::Wait {
                event: of,
                ticket: number,
            } => (of, number) == (event, ticket),
            _ => false,
        };
        for stream in self.streams.values_mut() {
            stream.queue.retain(|item| !waits(item));
        }
    }

    /// Breaks the contexts whose pending work touches what is about to be unmapped.
    pub(super) fn fail_work_in(&mut self, range: &Range<u64>) {
        let doomed = |item: &Item| match item {
            Item::Work(work) => work.ranges().any(|touched| {
                let common = touched.start.max(range.start)..touched.end.min(range.end);
                !common.is_empty() && self.first_mapping_in(common).is_some()
            }),
            Item::Record { .. } | Item::Wait { .. } | Item::Call(_) => false,
        };
        let streams = self.streams.values();
        let broken: Vec<usize> = streams
            .filter(|stream| stream.queue.iter().any(doomed))
            .map(|stream| stream.device)
            .collect();
        for &device in &broken {
            self.lose_context(device);
        }
        if !broken.is_empty() {
            self.run_streams();
        }
    }

    /// Forgets what a broken context had yet to do. A record that never comes holds up no other stream.
    pub(super) fn drop_pending_work(&mut self, device: usize) {
        let mut records = Vec::new();
        for stream in self.streams.values_mut() {
            if stream.device == device {
                records.extend(stream.queue.drain(..).filter_map(|item| match item {
                    Item::Record { event, ticket } => Some((event, ticket)),
                    _ => None,
                }));
            }
        }
        for (event, ticket) in records {
            self.reach(event, ticket);
        }
    }
}
