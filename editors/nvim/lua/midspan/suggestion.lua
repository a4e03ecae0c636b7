--- A suggestion tied to the text around it, in bytes, so that it can be judged against what was typed since.
--- Pure functions: nothing here reads or changes a buffer.
local M = {}

---@class midspan.Suggestion
---@field text string the text to insert at `start`
---@field start integer 0-based byte column where `text` begins
---@field covered integer bytes behind the cursor that accepting replaces
---@field command? lsp.Command to run after accepting all of it

---@class midspan.Place where a cursor stands
---@field row integer 0-based
---@field col integer 0-based byte column
---@field line string the whole line

--- Ties an answered item to the place it was requested for; nil for what cannot be shown there.
---@param item lsp.InlineCompletionItem
---@param place midspan.Place
---@param encoding string position encoding of the client
---@return midspan.Suggestion?
function M.from_item(item, place, encoding)
  local text = item.insertText
  if type(text) ~= "string" then
    return nil -- a snippet: Midspan's server sends none
  end
  local start, covered = place.col, 0
  if item.range then
    if item.range.start.line ~= place.row or item.range["end"].line ~= place.row then
      return nil
    end
    start = vim.str_byteindex(place.line, encoding, item.range.start.character, false)
    local stop = vim.str_byteindex(place.line, encoding, item.range["end"].character, false)
    if start > place.col or stop < place.col then
      return nil
    end
    covered = stop - place.col
  end
  return { text = text, start = start, covered = covered, command = item.command }
end

--- Gives where an item is valid: where it was asked for, or further on in the line when the server has seen more typed
--- before it answered and has taken the item along.
---@param item lsp.InlineCompletionItem
---@param asked midspan.Place
---@param now midspan.Place
---@param encoding string position encoding of the client
---@return midspan.Place
function M.place_of(item, asked, now, encoding)
  if not item.range or now.row ~= asked.row then
    return asked
  end
  local start = vim.str_byteindex(now.line, encoding, item.range.start.character, false)
  if start <= asked.col or start > now.col then
    return asked
  end
  return { row = now.row, col = start, line = now.line:sub(1, start) .. asked.line:sub(asked.col + 1) }
end

--- Carries a suggestion on to where the cursor stands now; nil when what was typed since contradicts or exhausts it.
---@param suggestion midspan.Suggestion
---@param asked midspan.Place where it was valid
---@param now midspan.Place
---@return midspan.Suggestion? carried starts at the cursor
function M.carry(suggestion, asked, now)
  local start = suggestion.start
  local is_same_line = now.row == asked.row
    and now.col >= start
    and now.line:sub(1, start) == asked.line:sub(1, start)
    and now.line:sub(now.col + 1) == asked.line:sub(asked.col + 1)
  if not is_same_line then
    return nil
  end
  local typed = now.line:sub(start + 1, now.col)
  if suggestion.text:sub(1, #typed) ~= typed then
    return nil
  end
  local rest = suggestion.text:sub(#typed + 1)
  if rest == now.line:sub(now.col + 1, now.col + suggestion.covered) then
    return nil -- typed to its end: accepting would change nothing
  end
  return { text = rest, start = now.col, covered = suggestion.covered, command = suggestion.command }
end

--- Gives the item that shows a carried suggestion at the cursor.
---@param suggestion midspan.Suggestion
---@param now midspan.Place
---@param encoding string
---@return lsp.InlineCompletionItem
function M.to_item(suggestion, now, encoding)
  local function position(col)
    return { line = now.row, character = vim.str_utfindex(now.line, encoding, col, false) }
  end
  return {
    insertText = suggestion.text,
    range = { start = position(now.col), ["end"] = position(now.col + suggestion.covered) },
  }
end

--- Gives the first word with the white space before it; bytes above 127 belong to words.
---@param text string
---@return string
function M.first_word(text)
  return text:match("^%s*[%w_\128-\255]+") or text:match("^%s*[^%w_%s\128-\255]+") or text
end

--- Gives the text up to the end of its first line; a leading line break takes the following line with it.
---@param text string
---@return string
function M.first_line(text)
  return text:match("^\n?[^\n]*")
end

return M
