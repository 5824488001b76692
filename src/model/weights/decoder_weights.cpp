#include "model/weights/decoder_weights.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "heddle/core/cuda_context.h"
#include "heddle/core/error.h"

#include "core/math.h"
#include "core/throwing_parallel_for.h"
#include "files/printable.h"
#include "model/weights/device_values.h"
#include "model/weights/weight_upload.h"

namespace heddle::model {
namespace {

/// Stored bytes that are read before they are packed.
constexpr size_t kPieceBytes = size_t{4} << 20;
/// Stored bytes of a piece that is copied to a GPU: enough for all threads, and for a copy that
/// takes longer than its launch.
constexpr size_t kUploadedPieceBytes = size_t{16} << 20;
constexpr size_t kCopiedBytes = size_t{256} << 10;  // by one thread at once
/// Stored bytes of a piece that is quantised or rounded, which needs two copies in f32 as well.
constexpr size_t kQuantizedPieceBytes = size_t{1} << 20;
constexpr int64_t kGroupRows = 16;  // pack_rows takes multiples of it
constexpr size_t kAlignment = 64;   // of a packed weight
/// Matrices lie one after another in chunks. In a mapping each, a step of one row took 1.10 times
/// as long: 4.76 ms against 4.31 on an AMD EPYC with AVX-512, SmolLM2-135M in Q4_1, one thread.
constexpr size_t kChunkBytes = size_t{64} << 20;

class Loader {
 public:
  Loader(const ExecContext& ctx, const WeightSource& source, const DecoderConfig& config,
         const TensorNames& names, const LoadOptions& options)
      : ctx_(ctx),
        host_{.threads = ctx.threads},
        source_(source),
        config_(config),
        names_(names),
        options_(options),
        block_(config.block()) {
    if (options.weights) quantizer_.emplace(host_, *options.weights);
    weights_.activations = choose_activations();
    if (!on_gpu()) return;
    rounder_.emplace(host_, dense_type());
    upload_.emplace(ctx);
  }

  DecoderWeights load() {
    if (options_.on_load) count_bytes();
    const LinearDims head = {config_.hidden_size, config_.vocab_size};
    weights_.embedding = matrix(names_.embedding, head);
    if (config_.tied_head) {
      weights_.output = weights_.embedding;
      used_.insert(names_.output);  // a copy of the embedding, where it was saved still
    } else {
      weights_.output = matrix(names_.output, head);
    }
    weights_.output_norm = vector(names_.output_norm, config_.hidden_size);
    load_rotation_factors();
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) load_layer(layer);
    for (const std::string_view name : source_.names()) {
      if (is_ignored(name) || used_.contains(name)) continue;
      throw_error(ErrorCode::kUnsupported, source_.path(), ": tensor ", files::quote(name),
                  " has no place in a ", config_.family, " model of ", config_.num_layers,
                  " layers");
    }
    if (upload_) upload_->finish();
    if (options_.on_load) options_.on_load(total_bytes_, total_bytes_);
    if (quantizer_) weights_.quantization = quantizer_->result();
    weights_.read_bytes = done_bytes_;
    weights_.product_activations = options_.product_activations;
    if (options_.product_activations == LinearActivations::kInt8) count_int8();
    return std::move(weights_);
  }

 private:
  /// How many matrices have products in int8; it is an error where none has.
  void count_int8() {
    const auto count = [this](const Matrix& matrix) {
      ++weights_.num_matrices;
      weights_.num_int8 += block_size(matrix.type) > 1;
    };
    for (const DecoderLayer& layer : weights_.layers) {
      for (const SliceWeights& slice : layer.slices) count(slice.matrix);
    }
    count(weights_.output);
    HEDDLE_CHECK(weights_.num_int8 > 0, source_.path(),
                 ": activations is int8, but no matrix is in a block format; weights (--weights) "
                 "q8_0 packs the model in one, activations f32 runs it as it is");
  }

  [[nodiscard]] bool is_ignored(std::string_view name) const {
    return !names_.ignored_suffix.empty() && name.ends_with(names_.ignored_suffix);
  }

  [[nodiscard]] bool on_gpu() const { return ctx_.device.type != DeviceType::kCpu; }
  /// Of dense matrices on a GPU.
  [[nodiscard]] WeightType dense_type() const {
    return weights_.activations == DType::kFloat16 ? WeightType::kF16 : WeightType::kBF16;
  }

  [[nodiscard]] DType choose_activations() const {
    if (!on_gpu()) return DType::kFloat32;
    const std::string name = names_.of(0, *block_.stored().front().module) + ".weight";
    WeightType type = source_.contains(name) ? source_.tensor(name).type : WeightType::kBF16;
    if (options_.weights && block_size(*options_.weights) == 1) type = *options_.weights;
    return type == WeightType::kF16 ? DType::kFloat16 : DType::kBFloat16;
  }

  void count_bytes() {
    for (const std::string_view name : source_.names()) {
      if (!is_ignored(name)) total_bytes_ += static_cast<int64_t>(source_.tensor(name).num_bytes);
    }
  }

  void load_rotation_factors() {
    for (const Rotation& rotation : config_.rotations) {
      const int64_t size = rotation.params.rotary_dim / 2;
      const auto factors = [&](const std::vector<float>& given, const std::string& name) {
        if (!given.empty()) return DeviceTensor(ctx_, std::span<const float>(given));
        const bool is_stored =
            &rotation == config_.rotations.data() && !name.empty() && source_.contains(name);
        return is_stored ? vector(name, size) : DeviceTensor();
      };
      RotationFactors both;
      both.factors = factors(rotation.factors, names_.rotation_factors);
      if (rotation.has_long_factors) {
        both.long_factors = factors(rotation.long_factors, names_.rotation_long_factors);
        HEDDLE_CHECK(both.long_factors.view().raw() != nullptr, source_.path(),
                     ": has no rotation factors of long sequences");
      }
      weights_.rotation_factors.push_back(std::move(both));
    }
  }

  void load_layer(int64_t index) {
    const std::string prefix = names_.layer(index);
    DecoderLayer layer;
    if (config_.norm_before) {
      layer.mixer.norm = vector(prefix + names_.attention_norm, config_.hidden_size);
      layer.mlp.norm = vector(prefix + names_.mlp_norm, config_.hidden_size);
    }
    if (config_.norm_after) {
      layer.mixer.post_norm = vector(prefix + names_.attention_post_norm, config_.hidden_size);
      layer.mlp.post_norm = vector(prefix + names_.mlp_post_norm, config_.hidden_size);
    }
    if (config_.qk_norm != QkNorm::kNone) {
      const bool each = config_.qk_norm == QkNorm::kEachHead;
      const auto size = [&](int64_t heads) { return config_.head_dim * (each ? 1 : heads); };
      layer.mixer.q_norm = vector(prefix + names_.q_norm, size(config_.num_q_heads));
      layer.mixer.k_norm = vector(prefix + names_.k_norm, size(config_.num_kv_heads));
    }
    for (const StoredLinear& stored : block_.stored()) load_slices(layer, index, stored);
    weights_.layers.push_back(std::move(layer));
  }

  /// The slices that one stored weight holds.
  void load_slices(DecoderLayer& layer, int64_t index, const StoredLinear& stored) {
    const auto [first, count] = stored.slices;
    const std::string name = names_.of(index, *stored.module);
    const bool has_bias = block_.site(block_.site_of(first)).has_bias;
    Part part{.first = 0, .all = block_.dims_of(stored.slices).out};
    for (int i = first; i < first + count; ++i) {
      const BlockSlice& slice = block_.slice(i);
      const bool interleaved = slice.rotates && config_.interleaved_qk;
      SliceWeights& loaded = layer.slices.emplace_back();
      loaded.matrix = matrix(name + ".weight", slice.dims, part, interleaved);
      if (has_bias) loaded.bias = bias(name + ".bias", slice.dims.out, part, interleaved);
      part.first += slice.dims.out;
    }
  }

  /// Where the rows of a slice begin in a stored tensor, and how many rows that has in all.
  struct Part {
    int64_t first = 0, all = 0;
  };

  /// Rows [row, row + num_rows) of a weight, and where their bytes lie in a stored tensor.
  struct Range {
    int64_t row = 0, num_rows = 0;
    size_t first = 0, length = 0;
  };

  StoredTensor checked(const std::string& name, int rank, int64_t columns, int64_t rows) {
    const StoredTensor tensor = source_.tensor(name);
    HEDDLE_CHECK(tensor.rank == rank && tensor.columns == columns && tensor.rows == rows,
                 *tensor.path, ": tensor ", files::quote(name), " is [", tensor.rows, ", ",
                 tensor.columns, "] of rank ", tensor.rank, ", expected [", rows, ", ", columns,
                 "] of rank ", rank);
    used_.insert(name);
    return tensor;
  }

  std::vector<float> values(const std::string& name, int64_t size) {
    const StoredTensor tensor = checked(name, 1, size, 1);
    std::vector<float> values(static_cast<size_t>(size));
    std::vector<std::byte> stored(tensor.num_bytes);
    source_.read(tensor, 0, stored);
    dequantize(values, tensor.type, stored);
    return values;
  }

  DeviceTensor vector(const std::string& name, int64_t size) {
    return {ctx_, std::span<const float>(values(name, size))};
  }

  DeviceTensor bias(const std::string& name, int64_t size, Part part, bool interleaved) {
    const std::vector<float> stored = values(name, part.all);
    std::vector<float> ordered(static_cast<size_t>(size));
    for (int64_t row = 0; row < size; ++row) {
      const int64_t source = part.first + (interleaved ? config_.interleaved_row(row) : row);
      ordered[static_cast<size_t>(row)] = stored[static_cast<size_t>(source)];
    }
    return tensor_of(ctx_, ordered, {size}, weights_.activations);
  }

  Matrix matrix(const std::string& name, const LinearDims& dims) {
    return matrix(name, dims, {0, dims.out}, false);
  }

  Matrix matrix(const std::string& name, const LinearDims& dims, Part part, bool interleaved) {
    const StoredTensor tensor = checked(name, 2, dims.in, part.all);
    WeightType type = quantizer_ ? quantizer_->type_of(tensor) : tensor.type;
    RowQuantizer* quantizer = type == tensor.type ? nullptr : &*quantizer_;
    const bool as_rows = on_gpu() && block_size(type) == 1;
    if (as_rows && type != dense_type()) {
      // From the stored values, so that they are rounded once.
      quantizer = tensor.type == dense_type() ? nullptr : &*rounder_;
      type = dense_type();
    }
    const PackedWeight weight{type, dims.out, dims.in, nullptr};
    const size_t size =
        as_rows ? stored_bytes(type, dims.out * dims.in) : packed_bytes(type, dims.out, dims.in);
    const std::span<std::byte> placed = place(size);
    weights_.num_bytes += size;
    const auto take = [&](int64_t row, int64_t num_rows, std::span<const std::byte> rows) {
      if (!on_gpu()) {
        return pack_rows(ctx_, placed, type, dims.out, dims.in, row, num_rows, rows);
      }
      std::byte* const to = placed.data() + bytes_of_rows(weight, row, as_rows);
      const std::span<std::byte> piece = upload_->next(bytes_of_rows(weight, num_rows, as_rows));
      if (as_rows) {
        copy_in_parallel(piece, rows);
      } else {
        pack_rows(host_, piece, type, num_rows, dims.in, 0, num_rows, rows);
      }
      upload_->send(to);
    };
    if (on_gpu() && quantizer == nullptr) {
      upload(tensor, weight, part.first, interleaved, placed.data(), as_rows);
    } else {
      for_pieces(tensor, weight, quantizer, part.first, interleaved, take);
    }
    if (!as_rows) return Matrix(PackedWeight{type, dims.out, dims.in, placed.data()});
    return Matrix(
        ConstTensorView(placed.data(), weights_.activations, ctx_.device, {dims.out, dims.in}));
  }

  /// Of the first rows of a weight, where `rows` are whole groups or all.
  static size_t bytes_of_rows(const PackedWeight& weight, int64_t rows, bool as_rows) {
    return as_rows ? stored_bytes(weight.type, rows * weight.in_features)
                   : packed_bytes(weight.type, rows, weight.in_features);
  }

  /// Copies bytes by all threads.
  void copy_in_parallel(std::span<std::byte> to, std::span<const std::byte> from) const {
    const auto num_parts = static_cast<int64_t>(ceil_div(from.size(), kCopiedBytes));
    parallel_for(host_, num_parts, 1, [&](int64_t begin, int64_t end) {
      const size_t first = static_cast<size_t>(begin) * kCopiedBytes;
      const size_t last = std::min(static_cast<size_t>(end) * kCopiedBytes, from.size());
      std::memcpy(to.data() + first, from.data() + first, last - first);
    });
  }

  /// Brings a weight to a GPU as it is stored, or packed: read from the file by all threads. A
  /// mapping took twice as long where a page fault is dear, 14.6 GB/s of bf16 against 34.0 on a
  /// machine with an H100.
  void upload(const StoredTensor& tensor, const PackedWeight& weight, int64_t first_row,
              bool interleaved, std::byte* placed, bool as_rows) {
    for_ranges(tensor, weight, kUploadedPieceBytes, first_row, [&](const Range& range) {
      const std::span<std::byte> piece =
          upload_->next(bytes_of_rows(weight, range.num_rows, as_rows));
      const size_t row_bytes = stored_bytes(tensor.type, weight.in_features);
      const int64_t num_groups = ceil_div(range.num_rows, kGroupRows);
      const auto bring = [&](int64_t group) {
        const int64_t first = group * kGroupRows;
        const int64_t count = std::min(kGroupRows, range.num_rows - first);
        const std::span<std::byte> part = piece.subspan(bytes_of_rows(weight, first, as_rows),
                                                        bytes_of_rows(weight, count, as_rows));
        if (as_rows) {
          return read_rows(tensor, first_row, range.row + first, interleaved, row_bytes, part);
        }
        // So few that they are still in the processor's cache when they are packed.
        const size_t num_bytes = static_cast<size_t>(count) * row_bytes;
        const auto stored = std::make_unique_for_overwrite<std::byte[]>(num_bytes);
        const std::span<std::byte> rows(stored.get(), num_bytes);
        read_rows(tensor, first_row, range.row + first, interleaved, row_bytes, rows);
        pack_rows({}, part, weight.type, count, weight.in_features, 0, count, rows);
      };
      throwing_parallel_for(host_, num_groups, 1, [&](int64_t begin, int64_t end) {
        for (int64_t group = begin; group < end; ++group) bring(group);
      });
      upload_->send(placed + bytes_of_rows(weight, range.row, as_rows));
    });
  }

  /// Reads the rows of a matrix from `row` on, in Hugging Face's order. It begins at row
  /// `first_row` of the tensor.
  void read_rows(const StoredTensor& tensor, int64_t first_row, int64_t row, bool interleaved,
                 size_t row_bytes, std::span<std::byte> rows) const {
    if (!interleaved) {
      return source_.read(tensor, static_cast<size_t>(first_row + row) * row_bytes, rows);
    }
    for (; !rows.empty(); ++row, rows = rows.subspan(row_bytes)) {
      source_.read(tensor,
                   static_cast<size_t>(first_row + config_.interleaved_row(row)) * row_bytes,
                   rows.first(row_bytes));
    }
  }

  /// The next `size` bytes for a matrix.
  std::span<std::byte> place(size_t size) {
    const size_t padded = round_up(size, kAlignment);
    if (padded > free_.size()) {
      const size_t num_bytes = std::max(padded, kChunkBytes);
      weights_.buffers.push_back(allocate_zeroed(ctx_.device, num_bytes, HostPages::kHuge));
      free_ = {weights_.buffers.back().get(), num_bytes};
    }
    const std::span<std::byte> place = free_.first(size);
    free_ = free_.subspan(padded);
    return place;
  }

  /// Calls take(range) for pieces that make up the weight, in order. Its rows begin at first_row of
  /// the tensor.
  template <class Take>
  void for_ranges(const StoredTensor& tensor, const PackedWeight& weight, size_t piece_bytes,
                  int64_t first_row, const Take& take) {
    const size_t row_bytes = stored_bytes(tensor.type, weight.in_features);
    const int64_t piece_rows =
        std::max<int64_t>(static_cast<int64_t>(piece_bytes / row_bytes) / kGroupRows, 1) *
        kGroupRows;
    for (int64_t row = 0; row < weight.out_features; row += piece_rows) {
      const int64_t num_rows = std::min(piece_rows, weight.out_features - row);
      const size_t length = static_cast<size_t>(num_rows) * row_bytes;
      take(Range{row, num_rows, static_cast<size_t>(first_row + row) * row_bytes, length});
      done_bytes_ += static_cast<int64_t>(length);
      if (options_.on_load) options_.on_load(done_bytes_, total_bytes_);
    }
  }

  /// Calls take(row, num_rows, bytes) for pieces that make up the weight, in the weight's type, in
  /// order. quantizer: null where they are stored in it.
  template <class Take>
  void for_pieces(const StoredTensor& tensor, const PackedWeight& weight, RowQuantizer* quantizer,
                  int64_t first_row, bool interleaved, const Take& take) {
    const size_t row_bytes = stored_bytes(tensor.type, weight.in_features);
    const size_t piece_bytes = quantizer != nullptr ? kQuantizedPieceBytes : kPieceBytes;
    for_ranges(tensor, weight, piece_bytes, first_row, [&](const Range& range) {
      rows_.resize(range.length);
      read_in_parallel(tensor, first_row, range, interleaved, row_bytes);
      std::span<const std::byte> rows = rows_;
      if (quantizer != nullptr) rows = quantizer->quantize(tensor, first_row + range.row, rows);
      take(range.row, range.num_rows, rows);
    });
  }

  /// Reads a range of a weight into rows_ by all threads. It begins at row `first_row` of the
  /// tensor.
  void read_in_parallel(const StoredTensor& tensor, int64_t first_row, const Range& range,
                        bool interleaved, size_t row_bytes) {
    const auto rows_at_once =
        std::max<int64_t>(static_cast<int64_t>(kCopiedBytes / std::max<size_t>(row_bytes, 1)), 1);
    const int64_t num_parts = ceil_div(range.num_rows, rows_at_once);
    throwing_parallel_for(host_, num_parts, 1, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * rows_at_once;
      const int64_t last = std::min(end * rows_at_once, range.num_rows);
      read_rows(tensor, first_row, range.row + first, interleaved, row_bytes,
                std::span(rows_).subspan(static_cast<size_t>(first) * row_bytes,
                                         static_cast<size_t>(last - first) * row_bytes));
    });
  }

  const ExecContext& ctx_;
  const ExecContext host_;  // the same threads; where packed weights are made for a GPU
  const WeightSource& source_;
  const DecoderConfig& config_;
  const TensorNames& names_;
  const LoadOptions& options_;
  const BlockShape block_;
  std::optional<RowQuantizer> quantizer_;  // to the requested type
  std::optional<RowQuantizer> rounder_;    // to the activations' dtype, of dense matrices
  std::optional<WeightUpload> upload_;     // to a GPU
  int64_t done_bytes_ = 0, total_bytes_ = 0;
  std::vector<std::byte> rows_;  // of a piece, in Hugging Face's order
  DecoderWeights weights_;
  std::span<std::byte> free_;  // of the last chunk
  std::set<std::string, std::less<>> used_;
};

}  // namespace

DecoderWeights load_weights(const ExecContext& ctx, const WeightSource& source,
                            const DecoderConfig& config, const TensorNames& names,
                            const LoadOptions& options) {
  const ScopedDevice on_device(ctx.device);
  const auto begin = std::chrono::steady_clock::now();
  DecoderWeights weights = Loader(ctx, source, config, names, options).load();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  weights.load_seconds = seconds.count();
  return weights;
}

}  // namespace heddle::model
