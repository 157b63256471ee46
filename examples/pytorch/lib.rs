//! An allocator for PyTorch whose memory can be taken away and put back: elastic ranges, suspended as a group.
//!
//! ```python
//! import ctypes, torch
//! path = "./libcuda_vmm_torch.so"
//! torch.cuda.memory.change_current_allocator(  # before anything is allocated on a device
//!     torch.cuda.memory.CUDAPluggableAllocator(path, "cuda_vmm_malloc_or_throw", "cuda_vmm_free"))
//! vmm = ctypes.CDLL(path)
//! vmm.cuda_vmm_suspend.restype = ctypes.c_int64
//!
//! model = build().cuda()
//! freed = vmm.cuda_vmm_suspend(1)  # all memory is other processes' now
//! vmm.cuda_vmm_resume()            # every tensor is back, at its address, with its contents
//! ```
//!
//! # Functions
//!
//! | symbol | what it does |
//! |---|---|
//! | `void *cuda_vmm_malloc(ssize_t size, int device, cudaStream_t stream)` | memory; NULL for 0 bytes, and if there is none |
//! | `void *cuda_vmm_malloc_or_throw(...)` | the same, but that a failure is a `std::runtime_error`, which PyTorch shows as a `RuntimeError`. **This is the one for PyTorch**, which takes NULL for memory and runs into it |
//! | `void cuda_vmm_free(void *, ssize_t size, int device, cudaStream_t stream)` | the memory back, with the size asked for and the stream that used it last; NULL is nothing |
//! | `int64_t cuda_vmm_suspend(int keep_contents)` | waits for all devices and gives their memory back: bytes, or -1. Contents are kept on the host, or go, and are zero then |
//! | `int cuda_vmm_resume(void)` | memory back in its place: 0, or -1, and it can be tried again |
//! | `int64_t cuda_vmm_trim(void)` | waits for all devices and gives back what is free in whole units of 32 MiB, and host memory that was kept for the next suspend: bytes of the devices, or -1 |
//! | `int64_t cuda_vmm_bytes(int which)` | over all devices: 0 committed, 1 retained (0 while suspended), 2 in use; or -1 |
//! | `size_t cuda_vmm_error(char *text, size_t capacity)` | the last error's text, at most `capacity` bytes with a closing zero; its whole length without. It stays until the next one |
//!
//! # What is to be known
//!
//! - While suspended, no tensor may be touched, and nothing enqueued that touches one: it would lose the context.
//!   Freeing is allowed, allocating is an error.
//! - Memory freed on a stream is used again at once on that stream, and on others once the device was idle: at a
//!   suspend, a trim, or when memory runs out. PyTorch does not tell a pluggable allocator of `Tensor.record_stream`:
//!   whoever uses a tensor on another stream keeps it until that is done.
//! - Memory is for its own device. PyTorch's switching on of peer access does not cover it; between devices, tensors go
//!   through the host.
//! - PyTorch has no `memory_stats`, `memory_allocated`, `memory_snapshot` or graph capture with such an allocator, and
//!   `empty_cache` does nothing: that is `cuda_vmm_trim`.
//! - One lock, over driver calls and waiting, too: work on the devices must not wait for a thread that allocates.
//!
//! # Safety
//!
//! What a C caller passes is vouched for by the caller: streams are never followed, only told apart, and addresses only
//! looked up; the buffer of `cuda_vmm_error` is written to.
#![allow(unsafe_code)]

mod border;
mod failure;
mod heap;
mod pool;
mod thrown;
