#include "files/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "heddle/core/error.h"

#include "files/lfs_pointer.h"
#include "files/printable.h"

namespace heddle::files {

static_assert(std::endian::native == std::endian::little, "GGUF numbers are read as they lie");

namespace {

constexpr uint64_t kFirstRead = uint64_t{1} << 20;
/// The largest vocabularies take some 30 MB.
constexpr uint64_t kMaxHead = uint64_t{1} << 30;

/// What is in memory ends before byte `end` of the file, which is needed.
struct HeadEnds {
  uint64_t end;
};

}  // namespace

/// Walks the file once from its start. No length, count or offset of the file is used before it is
/// checked against what is left of the file, and nothing is allocated in proportion to a number
/// that the file merely claims.
class GgufFile::Parser {
 public:
  explicit Parser(GgufFile& file) : file_(file), bytes_(file.bytes_), size_(file.size_) {}

  void run() {
    const auto [num_tensors, num_values] = header();
    for (uint64_t i = 0; i < num_values; ++i) metadata_value(i);
    read_alignment();
    for (uint64_t i = 0; i < num_tensors; ++i) tensor_info(i);
    place_tensors();
    check_no_overlap();
  }

 private:
  struct Counts {
    uint64_t tensors, values;
  };

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_error(ErrorCode::kInvalidArgument, file_.name_, ": ", parts...);
  }

  // What is being read, for errors: "metadata value 3 ('general.name')".
  [[nodiscard]] std::string where() const {
    std::string text = kind_;
    if (index_ != kNoIndex) text += ' ' + std::to_string(index_);
    if (!current_.empty()) text += " (" + quote(current_) + ')';
    return text;
  }
  void enter(const char* kind, uint64_t index) {
    kind_ = kind;
    index_ = index;
    current_ = {};
  }

  std::span<const std::byte> take_bytes(uint64_t count) {
    if (count > size_ - position_) {
      fail(where(), " needs ", count, " bytes at offset ", position_, ", the file ends at ", size_);
    }
    if (count > bytes_.size() - position_) throw HeadEnds{position_ + count};
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take_bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view take_string() {
    const auto text = take_bytes(take<uint64_t>());
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  Counts header() {
    refuse_lfs_pointer(bytes_, file_.name_);
    enter("the header", kNoIndex);
    if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
      const std::string_view start(reinterpret_cast<const char*>(bytes_.data()),
                                   std::min<size_t>(bytes_.size(), 4));
      fail("not a GGUF file: it begins with ", quote(start), ", expected 'GGUF'");
    }
    position_ = 4;
    file_.version_ = take<uint32_t>();
    if (const uint32_t version = file_.version_; version != 2 && version != 3) {
      const char* hint = (version & 0xffff) == 0 ? " (a big-endian file?)" : "";
      throw_error(ErrorCode::kUnsupported, file_.name_, ": GGUF version ", version, hint,
                  ", supported: 2 and 3");
    }
    const uint64_t num_tensors = take<uint64_t>(), num_values = take<uint64_t>();
    // A tensor takes at least 8 + 1 + 4 + 8 + 4 + 8 bytes, a value 8 + 1 + 4 + 1: counts that
    // cannot be true end here.
    const uint64_t left = size_ - position_;
    if (num_tensors > left / 33) {
      fail("the header counts ", num_tensors, " tensors, too many for ", size_, " bytes");
    }
    if (num_values > left / 14) {
      fail("the header counts ", num_values, " metadata values, too many for ", size_, " bytes");
    }
    return {num_tensors, num_values};
  }

  GgufType take_type() {
    const uint32_t id = take<uint32_t>();
    if (id > static_cast<uint32_t>(GgufType::kFloat64)) {
      fail(where(), " has type ", id, ", which GGUF does not define");
    }
    return static_cast<GgufType>(id);
  }

  void metadata_value(uint64_t index) {
    enter("metadata value", index);
    GgufValue value;
    value.key = current_ = take_string();
    if (value.key.empty()) fail(where(), " has an empty key");
    value.type = take_type();
    if (value.type == GgufType::kArray) {
      value.is_array = true;
      value.type = take_type();
      if (value.type == GgufType::kArray) {
        throw_error(ErrorCode::kUnsupported, file_.name_, ": ", where(), " is an array of arrays");
      }
      value.count = take<uint64_t>();
    }
    value.bytes = take_elements(value.type, value.count);
    if (!file_.key_index_.emplace(value.key, file_.metadata_.size()).second) {
      fail(where(), " has a key that the file has already");
    }
    file_.metadata_.push_back(value);
  }

  std::span<const std::byte> take_elements(GgufType type, uint64_t count) {
    const uint64_t begin = position_;
    const uint64_t smallest = type == GgufType::kString ? sizeof(uint64_t) : fixed_size(type);
    if (count > (size_ - begin) / smallest) {
      fail(where(), " has ", count, " elements of type ", type, ", too many for the ",
           size_ - begin, " bytes that follow");
    }
    if (type == GgufType::kString) {
      for (uint64_t i = 0; i < count; ++i) (void)take_string();
    } else {
      (void)take_bytes(count * smallest);
    }
    const auto elements = bytes_.subspan(begin, position_ - begin);
    if (type == GgufType::kBool) {
      for (const std::byte b : elements) {
        if (b > std::byte{1}) fail(where(), " holds ", int(b), " as a bool, expected 0 or 1");
      }
    }
    return elements;
  }

  void read_alignment() {
    file_.alignment_ = file_.get_or<uint32_t>("general.alignment", 32);
    if (!std::has_single_bit(file_.alignment_)) {
      fail("general.alignment is ", file_.alignment_, ", expected a power of two");
    }
  }

  void tensor_info(uint64_t index) {
    enter("tensor", index);
    GgufTensor tensor;
    tensor.name = current_ = take_string();
    if (tensor.name.empty()) fail(where(), " has an empty name");
    const uint32_t rank = take<uint32_t>();
    if (rank < 1 || rank > 4) fail(where(), " has ", rank, " dimensions, expected 1 to 4");
    tensor.rank = static_cast<int>(rank);
    int64_t num_weights = 1;
    for (uint32_t d = 0; d < rank; ++d) {
      const uint64_t extent = take<uint64_t>();
      if (extent == 0) fail(where(), " has extent 0 in dimension ", d);
      if (extent > uint64_t{std::numeric_limits<int64_t>::max()} ||
          __builtin_mul_overflow(num_weights, static_cast<int64_t>(extent), &num_weights)) {
        fail(where(), " has extent ", extent, " in dimension ", d, ": its size overflows 64 bits");
      }
      tensor.dims[d] = static_cast<int64_t>(extent);
    }
    tensor.type_id = take<uint32_t>();
    tensor.num_bytes = stored_size(tensor, num_weights);
    tensor.offset = take<uint64_t>();  // place_tensors adds where the data begins
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
      fail(where(), " has a name that the file has already");
    }
    file_.tensors_.push_back(tensor);
  }

  uint64_t stored_size(const GgufTensor& tensor, int64_t num_weights) const {
    const GgmlType* type = find_ggml_type(tensor.type_id);
    if (type == nullptr) return 0;
    if (tensor.dims[0] % type->block_weights != 0) {
      fail(where(), " has rows of ", tensor.dims[0], " weights, ", type->name,
           " needs a multiple of ", type->block_weights);
    }
    int64_t num_bytes = 0;
    if (__builtin_mul_overflow(num_weights / type->block_weights, type->block_bytes, &num_bytes)) {
      fail(where(), " has ", num_weights, " weights: its size overflows 64 bits");
    }
    return static_cast<uint64_t>(num_bytes);
  }

  void place_tensors() {
    const uint64_t mask = file_.alignment_ - 1;
    const uint64_t data_begin = (position_ + mask) & ~mask;
    for (GgufTensor& tensor : file_.tensors_) {
      if ((tensor.offset & mask) != 0) {
        fail("tensor ", quote(tensor.name), " begins at ", tensor.offset,
             " of the data, expected a multiple of ", file_.alignment_);
      }
      uint64_t end = 0;
      if (__builtin_add_overflow(tensor.offset, data_begin, &tensor.offset) ||
          __builtin_add_overflow(tensor.offset, tensor.num_bytes, &end)) {
        fail("tensor ", quote(tensor.name), ": its end overflows 64 bits");
      }
      if (end > size_) {
        fail("tensor ", quote(tensor.name), " needs the bytes ", tensor.offset, " to ", end,
             ", the file ends at ", size_);
      }
    }
  }

  // Tensors that share bytes would let a small file stand for a model of any size.
  void check_no_overlap() const {
    std::vector<const GgufTensor*> order;
    order.reserve(file_.tensors_.size());
    for (const GgufTensor& tensor : file_.tensors_) order.push_back(&tensor);
    std::sort(order.begin(), order.end(),
              [](const auto* a, const auto* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < order.size(); ++i) {
      const GgufTensor &before = *order[i - 1], &after = *order[i];
      if (before.offset + before.num_bytes > after.offset) {
        fail("tensor ", quote(after.name), " begins at ", after.offset, " inside tensor ",
             quote(before.name), ", which ends at ", before.offset + before.num_bytes);
      }
    }
  }

  static constexpr uint64_t kNoIndex = ~uint64_t{0};
  GgufFile& file_;
  std::span<const std::byte> bytes_;
  uint64_t size_, position_ = 0;
  const char* kind_ = "";
  uint64_t index_ = kNoIndex;
  std::string_view current_;
};

GgufFile::GgufFile(OpenFile file)
    : file_(std::move(file)), size_(file_->size()), name_(file_->path()) {
  // How far the metadata goes is known when it was read: where there is more, it begins anew with
  // at least twice as much.
  for (uint64_t wanted = kFirstRead;;) {
    if (wanted > kMaxHead) {
      throw_error(ErrorCode::kUnsupported, name_, ": what precedes the data of its tensors takes ",
                  wanted, " bytes, supported: ", kMaxHead);
    }
    head_.resize(std::min(wanted, size_));
    file_->read(0, head_);
    bytes_ = head_;
    try {
      Parser(*this).run();
      return;
    } catch (const HeadEnds& more) {
      wanted = std::max<uint64_t>(more.end, 2 * head_.size());
    }
    metadata_.clear();
    tensors_.clear();
    key_index_.clear();
    tensor_index_.clear();
  }
}

GgufFile::GgufFile(std::span<const std::byte> bytes, std::string name)
    : bytes_(bytes), size_(bytes.size()), name_(std::move(name)) {
  Parser(*this).run();
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const GgufTensor& GgufFile::tensor(std::string_view name) const {
  const GgufTensor* found = find_tensor(name);
  HEDDLE_CHECK(found != nullptr, name_, ": has no tensor ", quote(name));
  return *found;
}

WeightType GgufFile::weight_type(const GgufTensor& tensor) const {
  const auto type = weight_type_of(tensor.type_id);
  if (!type) {
    throw_error(ErrorCode::kUnsupported, name_, ": tensor ", quote(tensor.name), " has type ",
                ggml_type_name(tensor.type_id), ", supported: ", supported_ggml_types());
  }
  return *type;
}

std::vector<std::byte> GgufFile::data(const GgufTensor& tensor) const {
  (void)weight_type(tensor);
  std::vector<std::byte> data(tensor.num_bytes);
  read(tensor, 0, data);
  return data;
}

void GgufFile::read(const GgufTensor& tensor, uint64_t first, std::span<std::byte> to) const {
  HEDDLE_CHECK(first <= tensor.num_bytes && to.size() <= tensor.num_bytes - first, name_,
               ": read of ", to.size(), " bytes at ", first, " of tensor ", quote(tensor.name),
               ", which has ", tensor.num_bytes);
  if (file_) return file_->read(tensor.offset + first, to);
  std::ranges::copy(bytes_.subspan(tensor.offset + first, to.size()), to.begin());
}

}  // namespace heddle::files
