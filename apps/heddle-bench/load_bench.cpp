// The bench of a model's load: from its files, which are in the system's cache, to the device,
// against plain copies of the same files.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <thread>

#include <nlohmann/json.hpp>

#include "heddle/core/cuda_context.h"

#include "bench.h"
#include "core/device_name.h"
#include "core/math.h"
#include "core/throwing_parallel_for.h"
#include "engine/face/engine_options.h"
#include "engine/options/weight_options.h"
#include "engine/runner/engine_context.h"
#include "figures.h"
#include "files/open_file.h"
#include "model/source/model_files.h"
#include "model/weights/decoder_weights.h"
#include "model/weights/weight_upload.h"

namespace heddle::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kPieceBytes = size_t{16} << 20;

/// Copies a file to the device: each piece is read by all threads of the context at once, while the
/// copy of the one before is in flight.
void copy_file(const ExecContext& ctx, const std::string& path, std::byte* to) {
  const files::OpenFile file(path);
  const size_t size = file.size();
  const ExecContext host{.threads = ctx.threads};
  model::WeightUpload upload(ctx);
  for (size_t begin = 0; begin < size; begin += kPieceBytes) {
    const std::span<std::byte> piece = upload.next(std::min(kPieceBytes, size - begin));
    const auto part =
        static_cast<int64_t>(ceil_div(piece.size(), static_cast<size_t>(num_threads(host))));
    throwing_parallel_for(host, std::ssize(piece), part, [&](int64_t first, int64_t last) {
      file.read(begin + static_cast<size_t>(first),
                piece.subspan(static_cast<size_t>(first), static_cast<size_t>(last - first)));
    });
    upload.send(to + begin);
  }
  upload.finish();
}

/// GB/s of `run`, which brings num_bytes to the device.
Figure rates(const std::string& name, int64_t num_bytes, int num_samples,
             const std::function<void()>& run) {
  Figure figure{name, "GB/s", {}};
  run();  // so that the file is in the system's cache, and the driver is awake
  for (int i = 0; i < num_samples; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    figure.samples.push_back(1e-9 * static_cast<double>(num_bytes) / seconds.count());
  }
  print(figure);
  return figure;
}

}  // namespace

int bench_load(const BenchOptions& options) {
  const EngineOptions& given = options.model.engine;
  const auto files = model::open_model(given.model_path);
  const Device device = device_of(given);
  const ScopedDevice on_device(device);
  const int all_threads = given.num_threads > 0
                              ? given.num_threads
                              : static_cast<int>(std::thread::hardware_concurrency());
  int64_t num_bytes = 0;
  for (const std::string& path : files->file_paths()) {
    num_bytes += static_cast<int64_t>(std::filesystem::file_size(path));
  }
  Json head = {{"what",
                "heddle-bench load: a model's files, in the system's cache, to the device; GB/s of "
                "the files' bytes. plain_copy reads them piece by piece into page-locked memory, "
                "while the piece in front is copied"},
               {"device", {{"name", device_name(device)}, {"threads", all_threads}}},
               {"commit", options.commit},
               {"date", today()},
               {"model", given.model_path},
               {"bytes", num_bytes},
               {"records", Json::array()}};
  const auto add = [&](const std::string& op, int threads, const std::function<void()>& run) {
    const Figure figure =
        rates(op + "_" + std::to_string(threads) + "_threads", num_bytes, options.num_samples, run);
    head["records"].push_back({{"op", op},
                               {"threads", threads},
                               {"gb_per_s", median(figure.samples)},
                               {"samples", figure.samples}});
  };
  for (const int threads : {1, all_threads}) {
    const EngineContext context(device, threads);
    const DeviceBytes copy = allocate_zeroed(device, static_cast<size_t>(num_bytes));
    add("plain_copy", threads, [&] {
      size_t place = 0;
      for (const std::string& path : files->file_paths()) {
        copy_file(context.exec(), path, copy.get() + place);
        place += std::filesystem::file_size(path);
      }
    });
  }
  const EngineContext context(device, all_threads);
  add("load", all_threads, [&] {
    (void)model::load_weights(context.exec(), files->weights(), files->config(),
                              files->tensor_names(), load_options_of(given));
  });
  if (!options.json_path.empty()) write_file(options.json_path, head.dump(1));
  return 0;
}

}  // namespace heddle::app
