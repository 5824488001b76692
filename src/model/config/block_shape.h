#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace heddle::model {

/// A linear layer of a block by its names in files, without ".weight" and ".bias".
struct LinearModule {
  std::string_view name;  // of transformers and PEFT, after "model.layers.<layer>."
  std::string_view gguf;  // after "blk.<layer>."
};

/// All that heddle knows, in the order in which a block runs them. A checkpoint that stores the
/// rows of several slices in one weight, such as Phi-3, has a name of its own for it.
inline constexpr LinearModule kLinearModules[] = {
    {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},      {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"}, {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},           {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};
/// The module of this name in checkpoints of transformers; null where there is none.
[[nodiscard]] const LinearModule* find_linear_module(std::string_view name);

/// Features of a linear layer: its weight is [out, in].
struct LinearDims {
  int64_t in = 0, out = 0;
};

/// One product of a site, with a weight of its own.
struct BlockSlice {
  const LinearModule* module = nullptr;
  LinearDims dims;
  bool rotates = false;  // q and k: RoPE turns its outputs, and some files permute its rows
};

enum class SiteKind : uint8_t {
  kInner,     // its outputs are read within the block
  kResidual,  // its outputs, f32, are added to the residual
};

/// Slices that read the same input and run as one product.
struct BlockSite {
  const LinearModule* fused = nullptr;  // the module with the rows of all its slices, or null
  int first = 0, count = 1;             // its slices, in BlockShape::slices
  SiteKind kind = SiteKind::kInner;
  bool has_bias = false;
  bool is_fused = false;  // stored as `fused`, and not slice by slice
};

/// Slices [first, first + count) of a block, all of one site.
struct SliceRange {
  int first = 0, count = 0;
};

/// A weight as the checkpoint stores it.
struct StoredLinear {
  const LinearModule* module = nullptr;
  SliceRange slices;
};

/// Mixers and MLPs by kind, as the indices of their sites. A new kind is a further alternative.
struct AttentionSites {
  int qkv = 0, o = 0;
};
struct GatedMlpSites {
  int gate_up = 0, down = 0;
};

/// What a block of a decoder consists of: the same in every layer.
struct BlockShape {
  std::vector<BlockSlice> slices;
  std::vector<BlockSite> sites;  // in the order in which a block runs them
  std::variant<AttentionSites> mixer;
  std::variant<GatedMlpSites> mlp;

  [[nodiscard]] int num_slices() const { return static_cast<int>(slices.size()); }
  [[nodiscard]] int num_sites() const { return static_cast<int>(sites.size()); }
  [[nodiscard]] const BlockSlice& slice(int i) const { return slices[static_cast<size_t>(i)]; }
  [[nodiscard]] const BlockSite& site(int i) const { return sites[static_cast<size_t>(i)]; }
  [[nodiscard]] int site_of(int slice) const;
  /// Features of neighbouring slices of a site together.
  [[nodiscard]] LinearDims dims_of(SliceRange range) const;
  [[nodiscard]] LinearDims dims_of(const BlockSite& site) const {
    return dims_of({site.first, site.count});
  }

  /// The slices of a module, whether or not the checkpoint stores them in one weight; no block
  /// lacks a module of kLinearModules.
  [[nodiscard]] SliceRange find(const LinearModule& module) const;
  [[nodiscard]] std::vector<StoredLinear> stored() const;
};

/// What an adapter must fit.
struct ModelDims {
  int64_t num_layers = 0;
  BlockShape block;
  int64_t hidden_size = 0, vocab_size = 0;
};

}  // namespace heddle::model
