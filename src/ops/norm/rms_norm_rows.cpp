#include "ops/norm/rms_norm_rows.h"

namespace heddle {
namespace {

/// Whether axis `outer` of all tensors steps over what an inner axis of `size` and `strides`
/// covers.
bool continues(const PerRowTensor<int64_t>& outer, int64_t size,
               const PerRowTensor<int64_t>& strides) {
  for (size_t t = 0; t < kRowTensors; ++t) {
    if (outer[t] != size * strides[t]) return false;
  }
  return true;
}

}  // namespace

RowAxes merge_row_axes(const PerRowTensor<ConstTensorView>& tensors) {
  const ConstTensorView& input = tensors.back();
  RowAxes axes;
  for (int d = 0; d + 1 < input.rank(); ++d) {
    if (input.size(d) == 1) continue;
    PerRowTensor<int64_t> strides{};
    for (size_t t = 0; t < kRowTensors; ++t) {
      if (tensors[t]) strides[t] = tensors[t].stride(d) * int64_t(size_of(tensors[t].dtype()));
    }
    const auto next = static_cast<size_t>(axes.num_axes);
    if (next > 0 && continues(axes.strides[next - 1], input.size(d), strides)) {
      axes.sizes[next - 1] *= input.size(d);
      axes.strides[next - 1] = strides;
    } else {
      axes.sizes[next] = input.size(d);
      axes.strides[next] = strides;
      ++axes.num_axes;
    }
  }
  return axes;
}

void for_each_row_block(const RowAxes& axes, int64_t max_rows,
                        FunctionRef<void(const RowBlock&)> body) {
  // The innermost axes become the block's, as many as fit; those before them are walked.
  RowBlock block;
  int64_t block_rows = 1;
  int num_walked = axes.num_axes;
  for (size_t place = block.sizes.size(); place-- > 0 && num_walked > 0; --num_walked) {
    const auto axis = static_cast<size_t>(num_walked - 1);
    if (axes.sizes[axis] > max_rows / block_rows) break;
    block.sizes[place] = static_cast<uint32_t>(axes.sizes[axis]);
    block.strides[place] = axes.strides[axis];
    block_rows *= axes.sizes[axis];
  }
  if (axes.num_axes > 0 && num_walked == axes.num_axes) {
    throw_error(ErrorCode::kUnsupported, "input has ",
                axes.sizes[static_cast<size_t>(num_walked - 1)], " rows, at most ", max_rows,
                " are supported");
  }
  int64_t num_blocks = 1;
  for (int d = 0; d < num_walked; ++d) num_blocks *= axes.sizes[static_cast<size_t>(d)];
  for (int64_t b = 0; b < num_blocks; ++b) {
    block.first_row = b * block_rows;
    block.offsets = {};
    int64_t left = b;
    for (auto d = static_cast<size_t>(num_walked); d-- > 0; left /= axes.sizes[d]) {
      for (size_t t = 0; t < kRowTensors; ++t) {
        block.offsets[t] += left % axes.sizes[d] * axes.strides[d][t];
      }
    }
    body(block);
  }
}

}  // namespace heddle
