# embed.cmake: cmake -D LIST=FILE -D OUT=FOLDER -D GZIP=PROGRAM -P embed.cmake
# Reads lines "path|content type|file" and writes asset_bytes.S (the files' bytes, as they are and compressed) and
# asset_table.c (TALLY_ASSETS, with each file's size and checksum as they are now).

# Appends to `bytes` and `names` what defines the bytes of FILE as SYMBOL; sets `tag` and `size`.
function(embed file symbol)
  file(SIZE "${file}" n)
  file(SHA256 "${file}" sum)
  string(SUBSTRING ${sum} 0 32 sum)
  set(bytes "${bytes}    .globl ${symbol}\n    .type ${symbol}, %object\n    .balign 16\n${symbol}:\n\
    .incbin \"${file}\"\n    .size ${symbol}, ${n}\n    .byte 0\n" PARENT_SCOPE)
  set(names "${names}extern const char ${symbol}[];\n" PARENT_SCOPE)
  set(tag "\\\"${sum}\\\"" PARENT_SCOPE)
  set(size ${n} PARENT_SCOPE)
endfunction()

set(bytes "/* Made by services/dashboard/embed.cmake. */\n    .section .rodata\n")
set(names "")
set(copies "")
set(rows "")
set(n 0)
file(STRINGS ${LIST} lines)
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^([^|]+)\\|([^|]+)\\|([^|\"\\\\]+)$")
    message(FATAL_ERROR "not \"path|content type|file\": ${line}")
  endif()
  set(path "${CMAKE_MATCH_1}")
  set(type "${CMAKE_MATCH_2}")
  set(file "${CMAKE_MATCH_3}")
  if(type MATCHES "^text/")
    string(APPEND type "; charset=utf-8")
  endif()
  if(path MATCHES "^/assets/(.*)$")
    string(LENGTH "${CMAKE_MATCH_1}" length)
    if(length GREATER 31 OR CMAKE_MATCH_1 MATCHES "/")
      message(FATAL_ERROR "${path}: one segment of at most 31 characters")
    endif()
  endif()
  embed("${file}" tally_asset_${n})
  set(plain "\"${path}\", \"${type}\", \"${tag}\", tally_asset_${n}, ${size}")
  set(gzip NULL)
  set(packed ${OUT}/asset-${n}.gz)
  # Without name and time: the same file gives the same bytes, and so the same ETag.
  execute_process(COMMAND ${GZIP} -9 -n -c "${file}" OUTPUT_FILE ${packed} COMMAND_ERROR_IS_FATAL ANY)
  file(SIZE ${packed} packed_size)
  if(packed_size LESS size)
    embed(${packed} tally_asset_gzip_${n})
    string(APPEND copies "static const struct tally_asset GZIP_${n} = {\n\
    \"${path}\", \"${type}\", \"${tag}\", tally_asset_gzip_${n}, ${size}, NULL};\n")
    set(gzip "&GZIP_${n}")
  endif()
  string(APPEND rows "    {${plain}, ${gzip}},\n")
  math(EXPR n "${n} + 1")
endforeach()
# Without this note the linker would make the stack executable.
string(APPEND bytes "    .section .note.GNU-stack,\"\",%progbits\n")
file(WRITE ${OUT}/asset_bytes.S "${bytes}")
file(WRITE ${OUT}/asset_table.c "/* Made by services/dashboard/embed.cmake. */\n"
  "#include \"services/dashboard/dashboard.h\"\n\n${names}\n${copies}\n"
  "const struct tally_asset TALLY_ASSETS[] = {\n${rows}    {0},\n};\n")
