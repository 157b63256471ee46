//! Streams and events. Work is done when it is enqueued, unless the stream is held.

use std::collections::VecDeque;
use std::ffi::c_uint;
use std::ops::Range;

use crate::sys::{CUevent, CUevent_flags, CUresult, CUstream, CUstream_flags, Call};

use super::super::misuse::MisuseKind;
use super::abi::{Out, Token};
use super::copy::Work;
use super::{demand, refuse, Answer, Refusal, State};

const FIRST: u64 = 0xc1_0000_0000;
const STEP: u64 = 0x40;

/// The numbers that stand for the current context's default stream: null, the legacy one, the thread's own.
const DEFAULT_STREAMS: [Token; 3] = [Token(0), Token(1), Token(2)];

#[derive(Debug)]
pub(super) struct Stream {
    device: usize,
    /// A context's own stream, which is never created or destroyed by a call.
    is_default: bool,
    held: bool,
    queue: VecDeque<Item>,
}

#[derive(Debug)]
enum Item {
    Work(Work),
    Record { event: Token, ticket: u64 },
}

#[derive(Debug)]
pub(super) struct Event {
    device: usize,
    /// How often it was recorded.
    recorded: u64,
    /// The last record, while the stream has yet to reach it.
    pending: Option<u64>,
}

impl State {
    pub(super) fn cuStreamCreate(&mut self, stream: Out<CUstream>, flags: c_uint) -> Answer {
        stream.wanted()?;
        demand(flags & !CUstream_flags::CU_STREAM_NON_BLOCKING.0 == 0)?;
        let device = self.working_device()?;
        let token = self.add_stream(device, false);
        stream.put(token.pointer())
    }

    /// What is pending is done first, held or not.
    pub(super) fn cuStreamDestroy_v2(&mut self, stream: Token) -> Answer {
        demand(!DEFAULT_STREAMS.contains(&stream))?;
        self.current_device()?;
        let stream = self.known_stream(Call::cuStreamDestroy_v2, stream)?;
        self.release_stream(stream);
        self.streams.remove(&stream);
        Ok(())
    }

    pub(super) fn cuStreamSynchronize(&mut self, stream: Token) -> Answer {
        if self.stream_is_idle(Call::cuStreamSynchronize, stream)? {
            return Ok(());
        }
        Err(Refusal::NotYet)
    }

    pub(super) fn cuStreamQuery(&mut self, stream: Token) -> Answer {
        if self.stream_is_idle(Call::cuStreamQuery, stream)? {
            return Ok(());
        }
        refuse(CUresult::CUDA_ERROR_NOT_READY)
    }

    pub(super) fn cuEventCreate(&mut self, event: Out<CUevent>, flags: c_uint) -> Answer {
        const KNOWN: c_uint = CUevent_flags::CU_EVENT_BLOCKING_SYNC.0
            | CUevent_flags::CU_EVENT_DISABLE_TIMING.0
            | CUevent_flags::CU_EVENT_INTERPROCESS.0;
        event.wanted()?;
        demand(flags & !KNOWN == 0)?;
        // Another process could not be told the time.
        let untimed = flags & CUevent_flags::CU_EVENT_DISABLE_TIMING.0 != 0;
        demand(untimed || flags & CUevent_flags::CU_EVENT_INTERPROCESS.0 == 0)?;
        let device = self.working_device()?;
        let token = self.new_token();
        let made = Event {
            device,
            recorded: 0,
            pending: None,
        };
        self.events.insert(token, made);
        event.put(token.pointer())
    }

    pub(super) fn cuEventDestroy_v2(&mut self, event: Token) -> Answer {
        self.current_device()?;
        self.known_event(Call::cuEventDestroy_v2, event)?;
        self.events.remove(&event);
        Ok(())
    }

    pub(super) fn cuEventRecord(&mut self, event: Token, stream: Token) -> Answer {
        let current = self.working_device()?;
        let device = self.known_event(Call::cuEventRecord, event)?.device;
        self.healthy(device)?;
        let stream = self.resolve_stream(Call::cuEventRecord, stream, current)?;
        let held = self.defers(stream);
        let recorded = self.known_event(Call::cuEventRecord, event)?;
        recorded.recorded += 1;
        let ticket = recorded.recorded;
        recorded.pending = held.then_some(ticket);
        if let (true, Some(stream)) = (held, self.streams.get_mut(&stream)) {
            stream.queue.push_back(Item::Record { event, ticket });
        }
        Ok(())
    }

    pub(super) fn cuEventSynchronize(&mut self, event: Token) -> Answer {
        if self.event_is_reached(Call::cuEventSynchronize, event)? {
            return Ok(());
        }
        Err(Refusal::NotYet)
    }

    pub(super) fn cuEventQuery(&mut self, event: Token) -> Answer {
        if self.event_is_reached(Call::cuEventQuery, event)? {
            return Ok(());
        }
        refuse(CUresult::CUDA_ERROR_NOT_READY)
    }

    fn stream_is_idle(&mut self, call: Call, stream: Token) -> Answer<bool> {
        let current = self.working_device()?;
        let stream = self.resolve_stream(call, stream, current)?;
        self.healthy(self.stream_device(stream)?)?;
        Ok(self.is_idle(stream))
    }

    fn event_is_reached(&mut self, call: Call, event: Token) -> Answer<bool> {
        self.working_device()?;
        let event = self.known_event(call, event)?;
        let (device, pending) = (event.device, event.pending);
        self.healthy(device)?;
        Ok(pending.is_none())
    }

    /// The stream that a token means while a context of `current` is current.
    pub(super) fn resolve_stream(
        &mut self,
        call: Call,
        stream: Token,
        current: usize,
    ) -> Answer<Token> {
        if DEFAULT_STREAMS.contains(&stream) {
            return Ok(default_stream(current));
        }
        self.known_stream(call, stream)
    }

    fn known_stream(&mut self, call: Call, stream: Token) -> Answer<Token> {
        if self.streams.contains_key(&stream) {
            return Ok(stream);
        }
        self.misuse(call, MisuseKind::NoSuchStream, stream.0);
        refuse(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    fn known_event(&mut self, call: Call, event: Token) -> Answer<&mut Event> {
        if !self.events.contains_key(&event) {
            self.misuse(call, MisuseKind::NoSuchEvent, event.0);
        }
        match self.events.get_mut(&event) {
            Some(event) => Ok(event),
            None => refuse(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    pub(super) fn stream_device(&self, stream: Token) -> Answer<usize> {
        match self.streams.get(&stream) {
            Some(stream) => Ok(stream.device),
            None => refuse(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// Whether what is enqueued now stays pending.
    pub(super) fn defers(&self, stream: Token) -> bool {
        self.streams.get(&stream).is_some_and(|stream| stream.held)
    }

    pub(super) fn enqueue(&mut self, stream: Token, work: Work) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.queue.push_back(Item::Work(work));
        }
    }

    fn is_idle(&self, stream: Token) -> bool {
        let stream = self.streams.get(&stream);
        stream.is_none_or(|stream| stream.queue.is_empty())
    }

    /// Blocks while work of the device is pending.
    pub(super) fn wait_for_device(&self, device: usize) -> Answer {
        let busy = |stream: &Stream| stream.device == device && !stream.queue.is_empty();
        if self.streams.values().any(busy) {
            return Err(Refusal::NotYet);
        }
        Ok(())
    }

    /// `false` if there is no such stream.
    pub(super) fn hold_stream(&mut self, stream: Token) -> bool {
        let Some(stream) = self.stream_to_control(stream) else {
            return false;
        };
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.held = true;
            return true;
        }
        false
    }

    /// Lets a held stream run. `false` if there is no such stream.
    pub(super) fn release_stream(&mut self, stream: Token) -> bool {
        let Some(token) = self.stream_to_control(stream) else {
            return false;
        };
        let Some(stream) = self.streams.get_mut(&token) else {
            return false;
        };
        stream.held = false;
        let device = stream.device;
        for item in std::mem::take(&mut stream.queue) {
            match item {
                Item::Record { event, ticket } => self.reach(event, ticket),
                Item::Work(work) => {
                    if self.execute(device, work).is_err() {
                        // What was right when it was enqueued is wrong now: a fault on the device.
                        self.poison(device);
                        break;
                    }
                }
            }
        }
        true
    }

    fn stream_to_control(&self, stream: Token) -> Option<Token> {
        if DEFAULT_STREAMS.contains(&stream) {
            return self.current_device().ok().map(default_stream);
        }
        Some(stream)
    }

    fn reach(&mut self, event: Token, ticket: u64) {
        if let Some(event) = self.events.get_mut(&event) {
            if event.pending == Some(ticket) {
                event.pending = None;
            }
        }
    }

    /// Breaks the contexts whose pending work touches what is about to be unmapped.
    pub(super) fn fail_work_in(&mut self, range: &Range<u64>) {
        let doomed = |item: &Item| match item {
            Item::Work(work) => work.ranges().any(|touched| {
                let common = touched.start.max(range.start)..touched.end.min(range.end);
                !common.is_empty() && self.first_mapping_in(common).is_some()
            }),
            Item::Record { .. } => false,
        };
        let streams = self.streams.values();
        let broken: Vec<usize> = streams
            .filter(|stream| stream.queue.iter().any(doomed))
            .map(|stream| stream.device)
            .collect();
        for device in broken {
            self.poison(device);
        }
    }

    /// Forgets what a broken context had yet to do.
    pub(super) fn drop_pending_work(&mut self, device: usize) {
        for stream in self.streams.values_mut() {
            if stream.device == device {
                stream.queue.clear();
            }
        }
        for event in self.events.values_mut() {
            if event.device == device {
                event.pending = None;
            }
        }
    }

    /// Removes what a context leaves behind.
    pub(super) fn clear_streams(&mut self, device: usize) {
        self.drop_pending_work(device);
        self.streams
            .retain(|_, stream| stream.device != device || stream.is_default);
        self.events.retain(|_, event| event.device != device);
        if let Some(stream) = self.streams.get_mut(&default_stream(device)) {
            stream.held = false;
        }
    }

    /// The streams that were created and not destroyed.
    pub(super) fn created_streams(&self) -> usize {
        let streams = self.streams.values();
        streams.filter(|stream| !stream.is_default).count()
    }

    pub(super) fn make_default_streams(&mut self) {
        for device in 0..self.config.devices.len() {
            self.add_stream(device, true);
        }
    }

    fn add_stream(&mut self, device: usize, is_default: bool) -> Token {
        let token = self.new_token();
        let stream = Stream {
            device,
            is_default,
            held: false,
            queue: VecDeque::new(),
        };
        self.streams.insert(token, stream);
        token
    }

    fn new_token(&mut self) -> Token {
        let token = Token(FIRST + STEP * self.issued_tokens);
        self.issued_tokens += 1;
        token
    }
}

/// The default streams are the first tokens issued, one for each device.
fn default_stream(device: usize) -> Token {
    Token(FIRST + STEP * device as u64)
}
