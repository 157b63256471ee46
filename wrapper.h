/* The CUDA driver calls this crate uses, as one table.
 *
 * Each member has the very type that cuda.h gives the function of that name, so the generated table cannot disagree
 * with the header. A member's name is the exported symbol's name: where cuda.h renames a call to a later version by
 * macro, the version is written out. Every call stands in CUDA 11.8's header; whether the driver at hand exports it
 * is found out when the library is loaded.
 */
#include <cuda.h>

#if CUDA_VERSION < 11080
#error "cuda-vmm needs the cuda.h of CUDA 11.8 or newer"
#endif

/* src/sys/location.rs declares this struct for all headers; these lines hold it to the header at hand. */
_Static_assert(sizeof(CUmemLocation) == 8, "CUmemLocation is not 8 bytes: src/sys/location.rs does not fit this cuda.h");
_Static_assert(__builtin_offsetof(CUmemLocation, type) == 0, "CUmemLocation.type has moved: see src/sys/location.rs");
_Static_assert(__builtin_offsetof(CUmemLocation, id) == 4, "CUmemLocation.id has moved: see src/sys/location.rs");
_Static_assert(sizeof(((CUmemLocation *)0)->id) == 4, "CUmemLocation.id is no int: see src/sys/location.rs");

#define CALL(name) __typeof__(&name) name

struct CallTable {
    /* Start-up and devices */
    CALL(cuInit);
    CALL(cuDriverGetVersion);
    CALL(cuDeviceGetCount);
    CALL(cuDeviceGet);
    CALL(cuDeviceGetName);
    CALL(cuDeviceGetUuid_v2);
    CALL(cuDeviceGetAttribute);
    CALL(cuDeviceTotalMem_v2);
    CALL(cuDeviceCanAccessPeer);

    /* Contexts */
    CALL(cuDevicePrimaryCtxRetain);
    CALL(cuDevicePrimaryCtxRelease_v2);
    CALL(cuDevicePrimaryCtxReset_v2);
    CALL(cuCtxPushCurrent_v2);
    CALL(cuCtxPopCurrent_v2);
    CALL(cuCtxSetCurrent);
    CALL(cuCtxGetCurrent);
    CALL(cuCtxGetDevice);
    CALL(cuCtxSynchronize);

    /* Virtual memory management */
    CALL(cuMemAddressReserve);
    CALL(cuMemAddressFree);
    CALL(cuMemCreate);
    CALL(cuMemRelease);
    CALL(cuMemMap);
    CALL(cuMemUnmap);
    CALL(cuMemSetAccess);
    CALL(cuMemGetAccess);
    CALL(cuMemExportToShareableHandle);
    CALL(cuMemImportFromShareableHandle);
    CALL(cuMemGetAllocationGranularity);
    CALL(cuMemGetAllocationPropertiesFromHandle);
    CALL(cuMemRetainAllocationHandle);

    /* What lies at an address */
    CALL(cuMemGetAddressRange_v2);
    CALL(cuPointerGetAttribute);
    CALL(cuMemGetHandleForAddressRange);

    /* Ordinary memory, copies and fills */
    CALL(cuMemGetInfo_v2);
    CALL(cuMemAlloc_v2);
    CALL(cuMemFree_v2);
    CALL(cuMemcpyHtoD_v2);
    CALL(cuMemcpyDtoH_v2);
    CALL(cuMemcpyDtoD_v2);
    CALL(cuMemsetD8_v2);
    CALL(cuMemcpyHtoDAsync_v2);
    CALL(cuMemcpyDtoHAsync_v2);
    CALL(cuMemcpyDtoDAsync_v2);
    CALL(cuMemsetD8Async);
    CALL(cuMemcpy2DAsync_v2);

    /* Memory of the host that the devices reach */
    CALL(cuMemHostRegister_v2);
    CALL(cuMemHostUnregister);
    CALL(cuMemHostGetDevicePointer_v2);

    /* Streams and events */
    CALL(cuStreamCreate);
    CALL(cuStreamDestroy_v2);
    CALL(cuStreamSynchronize);
    CALL(cuStreamQuery);
    CALL(cuEventCreate);
    CALL(cuEventDestroy_v2);
    CALL(cuEventRecord);
    CALL(cuEventSynchronize);
    CALL(cuEventQuery);
    CALL(cuStreamWaitEvent);
    CALL(cuStreamWriteValue32_v2);
    CALL(cuLaunchHostFunc);

    /* Kernels */
    CALL(cuModuleLoadData);
    CALL(cuModuleGetFunction);
    CALL(cuModuleUnload);
    CALL(cuLaunchKernel);
};
