#include "files/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_tree.h"
#include "files/json_value.h"
#include "files/lfs_pointer.h"
#include "files/printable.h"

namespace heddle::files {
namespace {

static_assert(std::endian::native == std::endian::little, "the header's length is read as it lies");

// The format allows 100 MB; 16 MiB describe some 100,000 tensors and keep a hostile header from
// growing past memory.
constexpr uint64_t kMaxHeader = uint64_t{16} << 20;
constexpr uint64_t kFirstHeaderRead = 4096;  // bytes: the header's length, and other formats

struct NamedSize {
  const char* name;
  int64_t bits;
};
constexpr NamedSize kDTypes[] = {
    {"F64", 64}, {"F32", 32}, {"F16", 16},    {"BF16", 16},   {"I64", 64},
    {"I32", 32}, {"I16", 16}, {"I8", 8},      {"U64", 64},    {"U32", 32},
    {"U16", 16}, {"U8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"BOOL", 8},
};

/// The header of one file, read entry by entry.
class HeaderReader {
 public:
  HeaderReader(const std::string& name, std::span<const std::byte> data)
      : name_(name), data_(data) {}

  SafetensorsTensor tensor(const std::string& key, const Json& entry) const {
    if (!entry.is_object()) {
      fail(key, " is ", json_kind(entry), ", expected an object");
    }
    SafetensorsTensor tensor;
    tensor.name = key;
    const Json& dtype = member(key, entry, "dtype");
    if (!dtype.is_string()) {
      fail(key, ": dtype is ", json_kind(dtype), ", expected a string");
    }
    tensor.dtype_name = text_of(dtype);
    tensor.shape = integers(key, entry, "shape");
    const std::vector<int64_t> range = integers(key, entry, "data_offsets");
    if (range.size() != 2) fail(key, " has ", range.size(), " data_offsets, expected 2");
    const int64_t begin = range[0], end = range[1], size = static_cast<int64_t>(data_.size());
    if (begin > end || end > size) {
      fail(key, " has data_offsets ", begin, " to ", end, ", the file has ", size,
           " bytes of data");
    }
    tensor.data = data_.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    check_size(tensor);
    return tensor;
  }

  std::map<std::string, std::string> metadata(const Json& entry) const {
    if (!entry.is_object()) {
      fail("__metadata__", " is ", json_kind(entry), ", expected an object");
    }
    std::map<std::string, std::string> result;
    for (const auto& member : entry.get_object()) {
      const std::string_view key = member.key();
      const Json& value = member.value();
      HEDDLE_CHECK(value.is_string(), name_, ": __metadata__: ", quote(key), " is ",
                   json_kind(value), ", expected a string");
      result.emplace(key, text_of(value));
    }
    return result;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const std::string& key, const Parts&... parts) const {
    throw_error(ErrorCode::kInvalidArgument, name_, ": tensor ", quote(key), parts...);
  }

  const Json& member(const std::string& key, const Json& entry, const char* field) const {
    const Json* const found = find_member(entry, field);
    if (found == nullptr) fail(key, " has no ", field);
    return *found;
  }

  std::vector<int64_t> integers(const std::string& key, const Json& entry,
                                const char* field) const {
    const Json& list = member(key, entry, field);
    if (!list.is_array()) {
      fail(key, ": ", field, " is ", json_kind(list), ", expected an array");
    }
    std::vector<int64_t> result;
    for (const Json& value : list.get_array()) {
      // A number without a sign that is past 64 bits is a fraction to the parser, so it ends here
      // too.
      const std::optional<int64_t> number = integer_of(value);
      if (!number || *number < 0) {
        fail(key, " has ", printable(json_text(value)), " in ", field,
             ", expected an integer of 0 or more");
      }
      result.push_back(*number);
    }
    return result;
  }

  void check_size(const SafetensorsTensor& tensor) const {
    const auto* dtype = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                     [&](const auto& d) { return tensor.dtype_name == d.name; });
    if (dtype == std::end(kDTypes)) return;  // refused when its dtype is asked for
    int64_t bits = dtype->bits;
    for (const int64_t extent : tensor.shape) {
      if (__builtin_mul_overflow(bits, extent, &bits)) {
        fail(tensor.name, " has shape ", shape_text(tensor.shape), ": its size overflows 64 bits");
      }
    }
    if (static_cast<uint64_t>(bits / 8) != tensor.data.size()) {
      fail(tensor.name, " is ", tensor.dtype_name, ' ', shape_text(tensor.shape), ", which takes ",
           bits / 8, " bytes, data_offsets span ", tensor.data.size());
    }
  }

  const std::string& name_;
  std::span<const std::byte> data_;
};

}  // namespace

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t extent : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return printable(text + ']');
}

SafetensorsFile::SafetensorsFile(OpenFile file) : file_(std::move(file)), name_(file_->path()) {
  read_head();
  parse();
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, std::string name)
    : bytes_(bytes), size_(bytes.size()), name_(std::move(name)) {
  parse();
}

/// Reads the header as far as it may have one.
void SafetensorsFile::read_head() {
  size_ = file_->size();
  head_.resize(std::min(size_, kFirstHeaderRead));
  file_->read(0, head_);
  uint64_t header_size = 0;
  if (head_.size() >= sizeof(header_size)) {
    std::memcpy(&header_size, head_.data(), sizeof(header_size));
    const uint64_t end = sizeof(header_size) + std::min(header_size, kMaxHeader);
    if (header_size <= kMaxHeader && end <= size_ && end > head_.size()) {
      head_.resize(end);
      file_->read(0, head_);
    }
  }
  bytes_ = head_;
}

void SafetensorsFile::parse() {
  refuse_lfs_pointer(bytes_, name_);
  uint64_t header_size = 0;
  HEDDLE_CHECK(size_ >= sizeof(header_size), name_, ": not a safetensors file: it has ", size_,
               " bytes, its header alone 8");
  std::memcpy(&header_size, bytes_.data(), sizeof(header_size));
  HEDDLE_CHECK(header_size <= size_ - sizeof(header_size), name_, ": the header takes ",
               header_size, " bytes, the file has ", size_);
  if (header_size > kMaxHeader) {
    throw_error(ErrorCode::kUnsupported, name_, ": the header takes ", header_size,
                " bytes, supported: ", kMaxHeader);
  }
  const auto text = bytes_.subspan(sizeof(header_size), header_size);
  data_begin_ = sizeof(header_size) + header_size;
  if (file_) {
    values_ = ReservedBytes(size_ - data_begin_, name_);
    data_ = values_.bytes();
  } else {
    data_ = bytes_.subspan(data_begin_);
  }
  const auto document =
      parse_json({reinterpret_cast<const char*>(text.data()), text.size()}, name_, {.depth = 3});
  const Json& header = *document;
  HEDDLE_CHECK(header.is_object(), name_, ": the header is ", json_kind(header),
               ", expected an object");

  const HeaderReader reader(name_, data_);
  for (const auto& member : header.get_object()) {
    const std::string key(member.key());
    const Json& entry = member.value();
    if (key == "__metadata__") {
      metadata_ = reader.metadata(entry);
    } else {
      tensors_.push_back(reader.tensor(key, entry));
    }
  }
  std::stable_sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  check_layout();
}

// The format allows neither holes nor overlaps, so no byte of a file escapes notice.
void SafetensorsFile::check_layout() const {
  size_t end = 0;
  for (const SafetensorsTensor& tensor : tensors_) {
    const size_t begin = static_cast<size_t>(tensor.data.data() - data_.data());
    HEDDLE_CHECK(begin == end, name_, ": tensor ", quote(tensor.name), " begins at byte ", begin,
                 " of the data, the one before it ends at ", end);
    end += tensor.data.size();
  }
  HEDDLE_CHECK(end == data_.size(), name_, ": the tensors end at byte ", end,
               " of the data, the file has ", data_.size());
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

DType SafetensorsFile::dtype(const SafetensorsTensor& tensor) const {
  if (tensor.dtype_name == "F32") return DType::kFloat32;
  if (tensor.dtype_name == "F16") return DType::kFloat16;
  if (tensor.dtype_name == "BF16") return DType::kBFloat16;
  throw_error(ErrorCode::kUnsupported, name_, ": tensor ", quote(tensor.name), " has type ",
              printable(tensor.dtype_name), ", supported: F32, F16, BF16");
}

void SafetensorsFile::load() {
  if (file_) file_->read(data_begin_, values_.fill(name_));
}

void SafetensorsFile::read(const SafetensorsTensor& tensor, size_t first,
                           std::span<std::byte> to) const {
  const size_t size = tensor.data.size();
  HEDDLE_CHECK(first <= size && to.size() <= size - first, name_, ": read of ", to.size(),
               " bytes at ", first, " of tensor ", quote(tensor.name), ", which has ", size);
  const auto begin = static_cast<size_t>(tensor.data.data() - data_.data()) + first;
  if (file_) return file_->read(data_begin_ + begin, to);
  std::ranges::copy(data_.subspan(begin, to.size()), to.begin());
}

}  // namespace heddle::files
