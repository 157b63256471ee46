//! A driver that cannot have the kernel, or refuses a call of it: the copies go out one by one.

use cuda_vmm::pool::PoolError;
use cuda_vmm::sim::{Fault, SimDevice};
use cuda_vmm::sys::{CUresult, Call};
use cuda_vmm::{Code, Error};

use super::{arrived, calls, close, modules, payloads, source, with, SMALL};
use crate::ground::{pattern, simulation, soon, Ground};

/// Publishes 5 pieces on a producer that cannot launch, twice. Gives the calls that were made.
pub fn without(device: SimDevice, missing: Option<Call>) {
    let mut builder = with(device);
    if let Some(call) = missing {
        builder = builder.without(call);
    }
    let ground = Ground::with(builder, simulation());
    let (pool, consumers) = ground.pool(1, 1);
    let bytes = pattern(9, 5 * SMALL);
    let memory = source(&ground, &bytes);
    for _ in 0..2 {
        let slices = pool.publisher().publish_all(&payloads(&memory, 5)).unwrap();
        arrived(&pool, &consumers[0], &slices, &bytes);
    }
    let [load, function, unload, launch, copy] = calls(&ground.producer);
    assert_eq!((load, copy), (1, 10));
    let further = match missing {
        Some(Call::cuModuleGetFunction) => [1, 1, 0],
        Some(Call::cuLaunchKernel) => [1, 0, 1],
        _ => [0, 0, 0],
    };
    assert_eq!([function, unload, launch], further);
    close(&ground, pool, consumers);
    memory.close().unwrap();
    ground.leaves_nothing().unwrap();
}

/// A pool that publishes pieces while one call answers an error, and afterwards. The calls that were made: each time.
fn refused(call: Call, code: CUresult) -> [[u64; 5]; 2] {
    let ground = Ground::with(simulation(), simulation());
    let (pool, consumers) = ground.pool(1, 1);
    let bytes = pattern(10, 5 * SMALL);
    let memory = source(&ground, &bytes);
    let mut made = [[0; 5]; 2];
    let sim = ground.producer.sim();
    sim.inject(Fault::on(call).code(code)).unwrap();
    for made in &mut made {
        let before = calls(&ground.producer);
        let slices = pool.publisher().publish_all(&payloads(&memory, 5)).unwrap();
        arrived(&pool, &consumers[0], &slices, &bytes);
        let after = calls(&ground.producer);
        *made = std::array::from_fn(|index| after[index] - before[index]);
    }
    assert_eq!(sim.pending_faults(), []);
    close(&ground, pool, consumers);
    memory.close().unwrap();
    ground.leaves_nothing().unwrap();
    made
}

const LOAD: Call = Call::cuModuleLoadData;
const FUNCTION: Call = Call::cuModuleGetFunction;
const LAUNCH: Call = Call::cuLaunchKernel;
const ALL_COPIED: [u64; 5] = [0, 0, 0, 0, 5];

pub fn for_good(_: &Ground) {
    for code in [
        CUresult::CUDA_ERROR_INVALID_IMAGE,
        CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
        CUresult::CUDA_ERROR_INVALID_PTX,
        CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
        CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED,
        CUresult::CUDA_ERROR_NOT_FOUND,
        CUresult::CUDA_ERROR_NOT_SUPPORTED,
    ] {
        let [first, second] = refused(LOAD, code);
        assert_eq!((first, second), ([1, 0, 0, 0, 5], ALL_COPIED));
        let [first, second] = refused(FUNCTION, code);
        assert_eq!((first, second), ([1, 1, 1, 0, 5], ALL_COPIED));
        // A driver may compile no earlier than at the launch.
        let [first, second] = refused(LAUNCH, code);
        assert_eq!((first, second), ([1, 1, 0, 1, 5], ALL_COPIED));
    }
}

pub fn for_now(_: &Ground) {
    for code in [
        CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        CUresult::CUDA_ERROR_UNKNOWN,
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
    ] {
        let loaded_again = [1, 1, 0, 1, 0];
        let [first, second] = refused(LOAD, code);
        assert_eq!((first, second), ([1, 0, 0, 0, 5], loaded_again));
        let [first, second] = refused(FUNCTION, code);
        assert_eq!((first, second), ([1, 1, 1, 0, 5], loaded_again));
        let [first, second] = refused(LAUNCH, code);
        assert_eq!((first, second), ([1, 1, 0, 1, 5], [0, 0, 0, 1, 0]));
    }
}

pub fn second_launch(ground: &Ground) {
    let (pool, consumers) = ground.pool(2, 1);
    let bytes = pattern(11, 330 * SMALL);
    let memory = source(ground, &bytes);
    let sim = ground.producer.sim();
    sim.inject(Fault::on(LAUNCH).nth(2)).unwrap();
    let slices = pool.publisher().publish_all(&payloads(&memory, 330));
    arrived(&pool, &consumers[0], &slices.unwrap(), &bytes);
    // What came behind the launch that was refused went out one by one.
    assert_eq!(calls(&ground.producer), [1, 1, 0, 2, 170]);
    close(ground, pool, consumers);
    memory.close().unwrap();
}

pub fn no_function(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let bytes = pattern(12, 5 * SMALL);
    let memory = source(ground, &bytes);
    let sim = ground.producer.sim();
    let publish = |left| {
        let slices = pool.publisher().publish_all(&payloads(&memory, 5)).unwrap();
        arrived(&pool, &consumers[0], &slices, &bytes);
        assert_eq!(modules(&ground.producer), left);
    };
    sim.inject(Fault::on(FUNCTION)).unwrap();
    publish(0);
    // One that the driver does not unload is kept for the end.
    sim.inject(Fault::on(FUNCTION)).unwrap();
    sim.inject(Fault::on(Call::cuModuleUnload)).unwrap();
    publish(1);
    publish(2);
    assert_eq!(calls(&ground.producer), [3, 3, 2, 1, 10]);
    close(ground, pool, consumers);
    memory.close().unwrap();
}

pub fn unload_refused(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let bytes = pattern(13, 5 * SMALL);
    let memory = source(ground, &bytes);
    let slices = pool.publisher().publish_all(&payloads(&memory, 5)).unwrap();
    arrived(&pool, &consumers[0], &slices, &bytes);
    drop(consumers);
    let sim = ground.producer.sim();
    let fault = Fault::on(Call::cuModuleUnload).times(2);
    sim.inject(fault).unwrap();
    let mut pool = pool;
    for _ in 0..2 {
        let unclosed = pool.close(soon()).unwrap_err();
        match unclosed.error {
            PoolError::Memory(Error::Driver(failure)) => assert_eq!(
                (failure.call, failure.code),
                (Call::cuModuleUnload, Code::ERROR_UNKNOWN)
            ),
            other => panic!("{other:?}"),
        }
        pool = unclosed.pool;
        let left = sim.snapshot();
        assert_eq!((left.modules, left.streams, left.events), (1, 0, 0));
    }
    pool.close(soon()).unwrap();
    assert_eq!(modules(&ground.producer), 0);
    assert_eq!(calls(&ground.producer), [1, 1, 3, 1, 0]);
    memory.close().unwrap();
}

pub fn dropped(ground: &Ground) {
    let (pool, consumers) = ground.pool(1, 1);
    let bytes = pattern(14, 5 * SMALL);
    let memory = source(ground, &bytes);
    let slices = pool.publisher().publish_all(&payloads(&memory, 5)).unwrap();
    arrived(&pool, &consumers[0], &slices, &bytes);
    assert_eq!(modules(&ground.producer), 1);
    drop((pool, consumers));
    assert_eq!(modules(&ground.producer), 0);
    memory.close().unwrap();
}
