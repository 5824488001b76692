#include "model/eagle3/eagle3_weights.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "heddle/core/error.h"

#include "files/printable.h"
#include "files/safetensors.h"
#include "model/weights/device_values.h"

namespace heddle::model {
namespace {

WeightType weight_type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return WeightType::kF16;
    case DType::kBFloat16: return WeightType::kBF16;
    default: return WeightType::kF32;
  }
}

std::string path_of_weights(const std::string& folder) {
  const std::string path = folder + "/model.safetensors";
  std::error_code error;
  if (std::filesystem::exists(path, error)) return path;
  const bool has_pickles = std::filesystem::exists(folder + "/pytorch_model.bin", error);
  throw_error(has_pickles ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument, folder,
              ": has no model.safetensors, expected the weights of an EAGLE-3 drafter in that file",
              has_pickles ? "; pytorch_model.bin holds pickles, which heddle does not read, and "
                            "safetensors.torch.save_file writes what torch.load reads of it"
                          : "");
}

class Loader {
 public:
  Loader(const ExecContext& ctx, const std::string& folder, const Eagle3Config& config,
         const DecoderConfig& target, DType activations)
      : ctx_(ctx), config_(config), target_(target), file_(path_of_weights(folder)) {
    weights_.activations = activations;
  }

  Eagle3Weights load() {
    const int64_t h = config_.hidden_size, inner = config_.intermediate_size;
    Eagle3Weights& w = weights_;
    check_fused_size();
    w.fuse = matrix("fc.weight", h, kEagle3Layers * target_.hidden_size);
    w.q = matrix(of_layer("self_attn.q_proj.weight"), config_.q_size(), 2 * h);
    w.k = matrix(of_layer("self_attn.k_proj.weight"), config_.kv_size(), 2 * h);
    w.v = matrix(of_layer("self_attn.v_proj.weight"), config_.kv_size(), 2 * h);
    w.o = matrix(of_layer("self_attn.o_proj.weight"), h, config_.q_size());
    w.gate = matrix(of_layer("mlp.gate_proj.weight"), inner, h);
    w.up = matrix(of_layer("mlp.up_proj.weight"), inner, h);
    w.down = matrix(of_layer("mlp.down_proj.weight"), h, inner);
    w.head = matrix("lm_head.weight", config_.draft_vocab_size, h);
    w.embedding_norm = norm(of_layer("input_layernorm.weight"));
    w.hidden_norm = norm(of_layer("hidden_norm.weight"));
    w.mlp_norm = norm(of_layer("post_attention_layernorm.weight"));
    w.output_norm = norm("norm.weight");
    load_embedding();
    load_target_ids();
    refuse_the_others();
    return std::move(weights_);
  }

 private:
  using Tensor = files::SafetensorsTensor;

  /// Before its shape is checked, since this is how a drafter of another model shows.
  void check_fused_size() {
    const Tensor& tensor = get("fc.weight");
    const int64_t expected = kEagle3Layers * target_.hidden_size;
    HEDDLE_CHECK(tensor.shape.size() != 2 || tensor.shape[1] == expected, file_.path(), ": tensor ",
                 files::quote(tensor.name), " takes ", tensor.shape.back(), " values, expected ",
                 expected,
                 ", three hidden states of the model, which has a "
                 "hidden_size of ",
                 target_.hidden_size, ": the drafter was trained for another one");
  }

  static std::string of_layer(const std::string& name) { return "midlayer." + name; }

  /// By the names that folders have: with and without "model.", "midlayer." or "layers.0.".
  [[nodiscard]] const Tensor* find(std::string_view name) {
    constexpr std::string_view kLayer = "midlayer.";
    std::array<std::string, 2> names = {std::string(name), std::string(name)};
    if (name.starts_with(kLayer)) {
      names[1] = "layers.0." + std::string(name.substr(kLayer.size()));
    }
    for (const std::string& each : names) {
      for (const std::string& prefix : {std::string(), std::string("model.")}) {
        const Tensor* const found = file_.find(prefix + each);
        if (found == nullptr) continue;
        used_.insert(found->name);
        return found;
      }
    }
    return nullptr;
  }

  const Tensor& get(std::string_view name) {
    const Tensor* const found = find(name);
    HEDDLE_CHECK(found != nullptr, file_.path(), ": has no tensor ", files::quote(name),
                 ", expected that of an EAGLE-3 drafter");
    return *found;
  }

  void check_shape(const Tensor& tensor, std::initializer_list<int64_t> shape) const {
    const std::vector<int64_t> expected(shape);
    HEDDLE_CHECK(tensor.shape == expected, file_.path(), ": tensor ", files::quote(tensor.name),
                 " is ", files::shape_text(tensor.shape), ", expected ",
                 files::shape_text(expected));
  }

  [[nodiscard]] std::vector<std::byte> bytes_of(const Tensor& tensor) const {
    std::vector<std::byte> bytes(tensor.data.size());
    file_.read(tensor, 0, bytes);
    return bytes;
  }

  [[nodiscard]] std::vector<float> floats_of(const Tensor& tensor) const {
    const std::vector<std::byte> stored = bytes_of(tensor);
    const WeightType type = weight_type_of(file_.dtype(tensor));
    std::vector<float> values(stored.size() / stored_bytes(type, 1));
    dequantize(values, type, stored);
    return values;
  }

  Matrix matrix(const std::string& name, int64_t out, int64_t in) {
    return matrix(get(name), out, in);
  }

  Matrix matrix(const Tensor& tensor, int64_t out, int64_t in) {
    check_shape(tensor, {out, in});
    const DType dtype = file_.dtype(tensor);
    if (ctx_.device.type == DeviceType::kCpu) {
      const WeightType type = weight_type_of(dtype);
      const std::span<std::byte> place = make_place(packed_bytes(type, out, in));
      pack_rows(ctx_, place, type, out, in, 0, out, bytes_of(tensor));
      return Matrix(PackedWeight{type, out, in, place.data()});
    }
    if (dtype != weights_.activations) {
      weights_.rounded.push_back(
          tensor_of(ctx_, floats_of(tensor), {out, in}, weights_.activations));
      return Matrix(ConstTensorView(weights_.rounded.back().view()));
    }
    const std::vector<std::byte> stored = bytes_of(tensor);
    const std::span<std::byte> place = make_place(stored.size());
    copy_from_host(ctx_, place.data(), stored);
    return Matrix(ConstTensorView(place.data(), dtype, ctx_.device, {out, in}));
  }

  std::span<std::byte> make_place(size_t size) {
    weights_.buffers.push_back(allocate_zeroed(ctx_.device, size, HostPages::kHuge));
    return {weights_.buffers.back().get(), size};
  }

  DeviceTensor norm(const std::string& name) {
    const Tensor& tensor = get(name);
    check_shape(tensor, {config_.hidden_size});
    return {ctx_, std::span<const float>(floats_of(tensor))};
  }

  void load_embedding() {
    const Tensor* const tensor = find("embed_tokens.weight");
    weights_.has_embedding = tensor != nullptr;
    if (tensor != nullptr) {
      weights_.embedding = matrix(*tensor, config_.vocab_size, config_.hidden_size);
      return;
    }
    HEDDLE_CHECK(config_.hidden_size == target_.hidden_size, file_.path(),
                 ": has no tensor 'embed_tokens.weight', and the model's has ", target_.hidden_size,
                 " values a token, expected ", config_.hidden_size);
  }

  /// "d2t": what is added to the number of a draft to get the target's token. "t2d" says the same
  /// the other way round.
  void load_target_ids() {
    const int64_t count = config_.draft_vocab_size;
    const Tensor* const offsets = find("d2t");
    std::vector<int32_t> ids(static_cast<size_t>(count));
    if (offsets == nullptr) {
      HEDDLE_CHECK(count == config_.vocab_size, file_.path(),
                   ": has no tensor 'd2t', which says "
                   "what tokens its ",
                   count, " drafts are of the ", config_.vocab_size, " of the model");
    } else {
      check_shape(*offsets, {count});
      HEDDLE_CHECK(offsets->dtype_name == "I64", file_.path(), ": tensor ",
                   files::quote(offsets->name), " is ", offsets->dtype_name, ", expected I64");
    }
    const std::vector<std::byte> stored =
        offsets == nullptr ? std::vector<std::byte>() : bytes_of(*offsets);
    for (int64_t i = 0; i < count; ++i) {
      int64_t offset = 0;
      if (!stored.empty()) {
        std::memcpy(&offset, stored.data() + static_cast<size_t>(i) * sizeof(offset),
                    sizeof(offset));
      }
      HEDDLE_CHECK(offset >= -i && offset < config_.vocab_size - i, file_.path(),
                   ": tensor 'd2t' adds ", offset, " to draft ", i,
                   ", expected a token of the model, 0 to ", config_.vocab_size - 1);
      ids[static_cast<size_t>(i)] = static_cast<int32_t>(i + offset);
    }
    weights_.target_ids = DeviceTensor(ctx_, std::span<const int32_t>(ids));
    if (const Tensor* const mask = find("t2d")) check_shape(*mask, {config_.vocab_size});
  }

  void refuse_the_others() const {
    for (const Tensor& tensor : file_.tensors()) {
      if (used_.contains(tensor.name) || tensor.name.ends_with("rotary_emb.inv_freq")) continue;
      throw_error(ErrorCode::kUnsupported, file_.path(), ": tensor ", files::quote(tensor.name),
                  " has no place in an EAGLE-3 drafter of one layer");
    }
  }

  const ExecContext& ctx_;
  const Eagle3Config& config_;
  const DecoderConfig& target_;
  files::SafetensorsFile file_;
  Eagle3Weights weights_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace

Eagle3Weights load_eagle3_weights(const ExecContext& ctx, const std::string& folder,
                                  const Eagle3Config& config, const DecoderConfig& target,
                                  DType activations) {
  return Loader(ctx, folder, config, target, activations).load();
}

}  // namespace heddle::model
