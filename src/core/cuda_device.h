#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "heddle/core/context.h"

// What core asks the CUDA backend; src/cuda answers in builds that have it. So every call is inside
// `if constexpr (kWithCuda)`.

// As the CUDA runtime declares them.
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
typedef struct CUmemPoolHandle_st* cudaMemPool_t;

namespace heddle::cuda {

/// Devices that the driver shows; 0 without a driver.
[[nodiscard]] int num_devices();
/// Facts of device `index`, which is below num_devices().
[[nodiscard]] DeviceInfo device_info(int index);

/// What the driver calls it.
[[nodiscard]] std::string device_name(int index);

/// The current device of this thread.
[[nodiscard]] int current_device();
void set_current_device(int index);
/// The same where nothing may be thrown; an error is dropped.
void restore_current_device(int index) noexcept;

/// Memory of device `index`, all zero when this returns, 256-byte aligned; nullptr for 0 bytes.
/// Neither waits for other streams nor disturbs a capture that is going on.
[[nodiscard]] std::byte* allocate_zeroed(int index, size_t bytes);
/// Waits for the work of the device. An error is dropped: at the end of a process the driver may be
/// gone. nullptr is fine.
void free_memory(std::byte* memory) noexcept;

/// Memory of device `index` to be taken and given back in the order of streams. It keeps what is
/// given back.
[[nodiscard]] cudaMemPool_t make_pool(int index);
void free_pool(cudaMemPool_t pool) noexcept;
/// For what the stream runs from here on; nullptr for 0 bytes. It holds anything.
[[nodiscard]] std::byte* allocate_from(cudaMemPool_t pool, size_t bytes, cudaStream_t stream);
/// Frees memory of a pool in stream order, after all that was launched; an error is dropped.
void free_in_order(std::byte* memory, cudaStream_t stream) noexcept;

/// Bytes of memory of device `index` that can still be taken.
[[nodiscard]] int64_t available_bytes(int index);

/// A stream of device `index` that waits for no other.
[[nodiscard]] cudaStream_t make_stream(int index);
/// Waits for its work; drops errors as free_memory does.
void free_stream(cudaStream_t stream) noexcept;

/// Host memory that copies of the device reach by themselves, page-locked; all zero.
[[nodiscard]] std::byte* allocate_pinned(size_t bytes);
void free_pinned(std::byte* memory) noexcept;

/// Page-locks memory that the host has. Throws kOutOfMemory where the system refuses.
void pin(std::span<std::byte> memory);
void unpin(std::byte* memory) noexcept;

/// The same copies as below, of page-locked memory, without waiting for them.
void begin_copy_from_host(std::byte* to, std::span<const std::byte> from, cudaStream_t stream);
void begin_copy_to_host(std::span<std::byte> to, const std::byte* from, cudaStream_t stream);
void begin_copy_within(std::byte* to, std::span<const std::byte> from, cudaStream_t stream);

/// Either of them by a kernel, of 16-byte aligned memory and whole words of 4 bytes.
void begin_word_copy(std::byte* to, const std::byte* from, size_t bytes, cudaStream_t stream);

/// A mark on a stream of the current device; with the time, where it is timed.
[[nodiscard]] cudaEvent_t make_event(bool is_timed);
void free_event(cudaEvent_t event) noexcept;
void record_event(cudaEvent_t event, cudaStream_t stream);
/// Waits until the stream has come to the mark; at once where there was never one.
void wait_for(cudaEvent_t event);
/// Whether it has.
[[nodiscard]] bool has_passed(cudaEvent_t event);
/// What is asked of the stream from here on waits for the mark of another one.
void hold_until(cudaEvent_t event, cudaStream_t stream);
/// Between two timed marks that their streams have come to.
[[nodiscard]] double seconds_between(cudaEvent_t begin, cudaEvent_t end);

/// From here on calls on the stream, by this thread, become a graph.
void begin_capture(cudaStream_t stream);
/// The graph of the calls since begin_capture, ready to be launched; nullptr, with no error, where
/// a call has broken the capture off and throws itself.
[[nodiscard]] cudaGraphExec_t end_capture(cudaStream_t stream, bool is_wanted);
void launch_graph(cudaGraphExec_t graph, cudaStream_t stream);
void free_graph(cudaGraphExec_t graph) noexcept;

/// Copies between host memory and memory of the current device, in the order of the stream, and
/// waits for it.
void copy_from_host(std::byte* to, std::span<const std::byte> from, cudaStream_t stream);
void copy_to_host(std::span<std::byte> to, const std::byte* from, cudaStream_t stream);

/// A record without a fault for kernels of device `index`. May be called during a capture.
[[nodiscard]] FaultRecord* make_fault_record(int index);
/// Waits for the work of the device; drops errors as free_memory does.
void free_fault_record(FaultRecord* record) noexcept;
/// The fault that the record holds, and makes room for another.
[[nodiscard]] std::optional<Fault> take_fault(FaultRecord& record);

/// Waits for the stream, but not while it is captured.
void wait_for(cudaStream_t stream);

}  // namespace heddle::cuda
