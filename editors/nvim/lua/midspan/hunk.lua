--- One place of a proposed edit, in bytes, and how it looks. Pure functions: nothing here reads or changes a buffer.
local M = {}

---@class midspan.Hunk
---@field row integer 0-based, where what goes begins
---@field col integer 0-based byte column
---@field end_row integer
---@field end_col integer
---@field new string[] the lines that come in its place

---@param position lsp.Position
---@param lines string[]
---@param encoding string
---@return integer row
---@return integer col
local function bytes_of(position, lines, encoding)
  local line = lines[position.line + 1]
  if not line then
    return #lines, 0
  end
  return position.line, vim.str_byteindex(line, encoding, position.character, false)
end

--- Ties an edit to the lines of a buffer. A buffer has no line behind its last line break: what reaches there ends with
--- the last line instead.
---@param edit lsp.TextEdit
---@param lines string[] of the whole buffer
---@param encoding string position encoding of the client
---@return midspan.Hunk
function M.from_edit(edit, lines, encoding)
  local row, col = bytes_of(edit.range.start, lines, encoding)
  local end_row, end_col = bytes_of(edit.range["end"], lines, encoding)
  local new = vim.split((edit.newText:gsub("\r\n", "\n")), "\n", { plain = true })
  if end_row == #lines then
    end_row, end_col = #lines - 1, #lines[#lines]
    if new[#new] == "" then
      table.remove(new)
    end
    if row == #lines then
      row, col = end_row, end_col
      table.insert(new, 1, "")
    elseif #new == 0 and row > 0 then
      row, col = row - 1, #lines[row]
    end
    if #new == 0 then
      new = { "" }
    end
  end
  return { row = row, col = col, end_row = end_row, end_col = end_col, new = new }
end

---@param hunk midspan.Hunk
---@return boolean of whole lines, the line break behind the last one with them
local function is_linewise(hunk)
  local is_change = #hunk.new > 1 or hunk.end_row > hunk.row
  return is_change and hunk.col == 0 and hunk.end_col == 0 and hunk.new[#hunk.new] == ""
end

---@class midspan.Look how what comes is drawn
---@field inline? string within the line, behind what goes
---@field below? string[] as lines of their own, below `row`
---@field row integer -1 for above the first line

--- Gives how a hunk is drawn.
---@param hunk midspan.Hunk
---@param first string the line in which it begins
---@param last string the line in which it ends
---@return midspan.Look
function M.look(hunk, first, last)
  local new = hunk.new
  if is_linewise(hunk) then
    return { below = vim.list_slice(new, 1, #new - 1), row = hunk.end_row - 1 }
  end
  if hunk.row == hunk.end_row and #new == 1 then
    return { inline = new[1], row = hunk.row }
  end
  local below = vim.deepcopy(new)
  below[1] = first:sub(1, hunk.col) .. below[1]
  below[#below] = below[#below] .. last:sub(hunk.end_col + 1)
  if below[1] == first and hunk.row == hunk.end_row then
    table.remove(below, 1) -- the line stays as it is, only what follows is new
  end
  return { below = below, row = hunk.end_row }
end

return M
