//! The snapshot: all that the calls could find out, in one value.

use super::super::place::Place;
use super::super::snapshot::{
    ExportState, HandleState, MappingState, OrdinaryState, RegisteredState, ReservationState,
    Snapshot,
};
use super::State;

impl State {
    pub(super) fn snapshot(&mut self) -> Snapshot {
        self.reap();
        let devices = 0..self.config.devices.len();
        let free = |device: usize| self.free_bytes(Place::Device(device as i32));
        Snapshot {
            reservations: self.reservation_states(),
            mappings: self.mapping_states(),
            handles: self.handle_states(),
            exports: self.export_states(),
            ordinary: self.ordinary_states(),
            registered: self.registered_states(),
            free_on_devices: devices.map(free).collect(),
            free_on_host: self.free_bytes(Place::Host),
            retained_contexts: self.contexts.iter().map(|of| of.retained).collect(),
            context_depth: self.depth(),
            streams: self.created_streams(),
            events: self.events.len(),
            modules: self.modules.len(),
        }
    }

    fn reservation_states(&self) -> Vec<ReservationState> {
        let state = |(&address, &size)| ReservationState { address, size };
        self.reservations.iter().map(state).collect()
    }

    fn mapping_states(&self) -> Vec<MappingState> {
        let mappings = self.mappings.iter();
        mappings
            .map(|(&address, mapping)| MappingState {
                address,
                size: mapping.size,
                handle: mapping.handle,
                rights: mapping.rights.list(),
            })
            .collect()
    }

    fn handle_states(&self) -> Vec<HandleState> {
        let handles = self.handles.iter();
        handles
            .filter_map(|(&handle, entry)| {
                let physical = self.physicals.get(&entry.physical)?;
                Some(HandleState {
                    handle,
                    memory: entry.physical,
                    size: physical.size,
                    place: physical.place,
                    count: entry.count,
                    mapped: entry.mapped,
                    requested_types: if entry.imported { 0 } else { physical.types },
                    imported: entry.imported,
                })
            })
            .collect()
    }

    fn export_states(&self) -> Vec<ExportState> {
        let exported = self
            .physicals
            .iter()
            .filter(|(_, physical)| physical.exported && self.backend.shared(&physical.store));
        exported
            .map(|(&memory, physical)| ExportState {
                memory,
                size: physical.size,
                place: physical.place,
            })
            .collect()
    }

    fn ordinary_states(&self) -> Vec<OrdinaryState> {
        let ordinary = self.ordinary.iter();
        ordinary
            .map(|(&address, memory)| OrdinaryState {
                address,
                size: memory.size,
                device: memory.device,
            })
            .collect()
    }

    fn registered_states(&self) -> Vec<RegisteredState> {
        let registered = self.registered.iter();
        registered
            .map(|(&address, range)| RegisteredState {
                address,
                size: range.size,
            })
            .collect()
    }
}
